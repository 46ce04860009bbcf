// Which batches a run may begin with before it is asked for. Needs no GPU.
#include "backend/cuda/rows/next_batch.h"

#include <gtest/gtest.h>

namespace assay::backend::cuda {
namespace {

struct Tokens {
  std::vector<int32_t> tokens, positions, sequences;
  std::vector<uint8_t> outputs = std::vector<uint8_t>(tokens.size(), 1);
  ops::Batch batch() const { return {tokens, positions, sequences, outputs}; }
};

bool one_each(const Tokens& t, const std::vector<int64_t>& n_positions) {
  ops::ExecutorOptions options;
  options.n_ctx = 10;
  options.n_sequences = static_cast<int>(n_positions.size());
  ops::BatchShape shape;
  ops::check_batch(t.batch(), options, n_positions, shape);
  return is_one_each(shape, static_cast<int64_t>(t.tokens.size()));
}

TEST(NextBatch, IsOfOneTokenOfEachSequence) {
  EXPECT_TRUE(one_each({{4}, {3}, {}}, {3}));
  EXPECT_TRUE(one_each({{4}, {9}, {}}, {9}));
  EXPECT_FALSE(one_each({{4, 5}, {3, 4}, {}}, {3}));
  EXPECT_FALSE(one_each({{4}, {3}, {}, {0}}, {3}));
  EXPECT_TRUE(one_each({{4, 5, 6}, {3, 0, 7}, {2, 0, 1}}, {0, 7, 3}));
  EXPECT_FALSE(one_each({{4, 5, 6}, {3, 0, 7}, {2, 0, 1}, {1, 0, 1}}, {0, 7, 3}));
  EXPECT_FALSE(one_each({{4, 5, 6}, {3, 0, 4}, {2, 0, 2}}, {0, 7, 3}));  // two of one sequence, apart
}

TEST(NextBatch, IsTheBestTokensOnePositionOn) {
  const std::vector<int32_t> best = {40, ops::kNone, 60};
  const auto best_of = [&](int64_t i) { return best[static_cast<size_t>(i)]; };
  NextBatch next;
  const Tokens right{{40}, {4}, {}};
  EXPECT_FALSE(next.is(right.batch(), best_of));
  next.expect_after(Tokens{{9}, {3}, {}}.batch());
  EXPECT_TRUE(next.is(right.batch(), best_of));
  EXPECT_TRUE(next.is(Tokens{{40}, {4}, {0}}.batch(), best_of));
  EXPECT_FALSE(next.is(Tokens{{41}, {4}, {}}.batch(), best_of));
  EXPECT_FALSE(next.is(Tokens{{40}, {3}, {}}.batch(), best_of));
  EXPECT_FALSE(next.is(Tokens{{40}, {4}, {1}}.batch(), best_of));
  EXPECT_FALSE(next.is(Tokens{{40}, {4}, {}, {0}}.batch(), best_of));
  EXPECT_FALSE(next.is(Tokens{{40, 5}, {4, 5}, {}}.batch(), best_of));
  next.forget();
  EXPECT_FALSE(next.is(right.batch(), best_of));
  next.expect_after(Tokens{{1, 2, 3}, {3, 0, 7}, {2, 0, 1}}.batch());
  const Tokens three{{40, 0, 60}, {4, 1, 8}, {2, 0, 1}};
  EXPECT_FALSE(next.is(three.batch(), best_of));  // the second row has no best token, and the device went on with 0
  const std::vector<int32_t> all = {40, 0, 60};
  EXPECT_TRUE(next.is(three.batch(), [&](int64_t i) { return all[static_cast<size_t>(i)]; }));
}

}  // namespace
}  // namespace assay::backend::cuda
