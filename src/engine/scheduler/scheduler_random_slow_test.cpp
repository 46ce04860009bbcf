// Random schedules of 10,000 steps each.
#include "support/engine/random_schedule.h"
#include "support/rounds.h"
#include "support/shared_data.h"

namespace assay {
namespace {

class LongRandomSchedule : public test::RandomSchedule {};

TEST_F(LongRandomSchedule, EndsWithEveryAnswerAndNoPage) {
  for (uint64_t seed = 1; seed <= test::rounds<uint64_t>(8, 1); ++seed) walk(10'000, seed);
}

TEST_F(LongRandomSchedule, WithSavedPromptsEndsWithEveryAnswerAndNoPage) {
  saves_ = true;
  for (uint64_t seed = 1; seed <= test::rounds<uint64_t>(2, 1); ++seed) walk(10'000, seed);
}

TEST_F(LongRandomSchedule, OfAModelWithWindowsEndsWithEveryAnswerAndNoPage) {
  const auto path = test::shared("goldens/arch/gemma2.gguf");
  ASSAY_REQUIRE_FILE(path);
  model_ = Model::load(path.string(), {.tokenizer = false});
  for (uint64_t seed = 1; seed <= test::rounds<uint64_t>(4, 1); ++seed) walk(10'000, seed);
}

}  // namespace
}  // namespace assay
