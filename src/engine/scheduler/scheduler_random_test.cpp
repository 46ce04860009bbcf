// A random schedule, shortly; scheduler_random_slow_test.cpp has the long one.
#include "support/random_schedule.h"
#include "support/rounds.h"

namespace assay {
namespace {

class ShortRandomSchedule : public test::RandomSchedule {};

TEST_F(ShortRandomSchedule, EndsWithEveryAnswerAndNoPage) {
  for (uint64_t seed = 1; seed <= test::unless_sanitized<uint64_t>(4, 1); ++seed) walk(250, seed);
}

}  // namespace
}  // namespace assay
