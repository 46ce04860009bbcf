// A random schedule, shortly; scheduler_random_slow_test.cpp has the long one.
#include "support/engine/random_schedule.h"
#include "support/rounds.h"
#include "support/shared_data.h"

namespace assay {
namespace {

class ShortRandomSchedule : public test::RandomSchedule {};

TEST_F(ShortRandomSchedule, EndsWithEveryAnswerAndNoPage) {
  for (uint64_t seed = 1; seed <= test::unless_sanitized<uint64_t>(4, 1); ++seed) walk(250, seed);
}

// Windows of 8 positions: what lies behind them is given back, and hits far from the end of what is kept are none.
TEST_F(ShortRandomSchedule, OfAModelWithWindowsEndsWithEveryAnswerAndNoPage) {
  const auto path = test::shared("goldens/arch/gemma2.gguf");
  ASSAY_REQUIRE_FILE(path);
  model_ = Model::load(path.string(), {.tokenizer = false});
  for (uint64_t seed = 1; seed <= test::unless_sanitized<uint64_t>(4, 1); ++seed) walk(250, seed);
}

// A pool this small keeps little of what is over: the beginnings that come again are read from files.
TEST_F(ShortRandomSchedule, WithSavedPromptsEndsWithEveryAnswerAndNoPage) {
  saves_ = true;
  for (uint64_t seed = 1; seed <= test::unless_sanitized<uint64_t>(4, 2); ++seed) walk(400, seed);
}

TEST_F(ShortRandomSchedule, WithSavedPromptsAndWindowsEndsWithEveryAnswerAndNoPage) {
  const auto path = test::shared("goldens/arch/gemma2.gguf");
  ASSAY_REQUIRE_FILE(path);
  model_ = Model::load(path.string(), {.tokenizer = false});
  saves_ = true;
  for (uint64_t seed = 1; seed <= test::unless_sanitized<uint64_t>(4, 1); ++seed) walk(400, seed);
}

// States, which forks take along: hits end where these are known, and nothing is kept elsewhere.
TEST_F(ShortRandomSchedule, OfAModelWithStatesEndsWithEveryAnswerAndNoPage) {
  const auto path = test::shared("goldens/arch/qwen35.gguf");
  ASSAY_REQUIRE_FILE(path);
  model_ = Model::load(path.string(), {.tokenizer = false});
  has_images_ = false;
  for (uint64_t seed = 1; seed <= test::unless_sanitized<uint64_t>(4, 1); ++seed) walk(250, seed);
}

}  // namespace
}  // namespace assay
