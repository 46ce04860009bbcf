// The best logits against a sort on the host: ties, both zeros, infinities, rows of one part and of several passes.
#include "backend/cuda/rows/rank.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "backend/cuda/kernels/unpack_table.h"
#include "backend/cuda/linear/matrix_test.h"
#include "backend/cuda/rows/allowed.h"
#include "backend/cuda/runtime/device_test.h"
#include "ops/embed/embed.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<ops::RankedLogit> expected_of(std::span<const float> row, int64_t k) {
  std::vector<ops::RankedLogit> best(static_cast<size_t>(k), {ops::kNone, 0.0f});
  if (std::any_of(row.begin(), row.end(), [](float x) { return !(x < kInfinity); })) return best;
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)]; });
  for (size_t i = 0; i < std::min(best.size(), order.size()); ++i) {
    const float logit = row[static_cast<size_t>(order[i])];
    if (logit > -kInfinity) best[i] = {order[i], logit};
  }
  return best;
}

// allowed: of each row, none where every entry counts.
void forbid(const std::vector<uint64_t>& allowed, std::vector<float>& row) {
  for (size_t i = 0; !allowed.empty() && i < row.size(); ++i) {
    if ((allowed[i / 64] >> (i % 64) & 1) == 0) row[i] = -kInfinity;
  }
}

void check_rows(const std::vector<float>& logits, int64_t n_rows, int64_t width, int64_t k,
                const std::vector<std::vector<uint64_t>>& allowed = {}) {
  const DeviceBuffer device = upload(logits),
                     scratch(static_cast<size_t>(rank_scratch_words(n_rows, width, k)) * 8, "a test");
  const DeviceBuffer best = poisoned(static_cast<size_t>(2 * n_rows * k));
  if (scratch.size() > 0) check(cudaMemset(scratch.data(), 0, scratch.size()), "clearing test memory");
  AllowedRows rows;
  std::vector<ops::AllowedTokens> outputs;
  for (size_t r = allowed.size(); r-- > 0;) {
    if (!allowed[r].empty()) outputs.push_back({static_cast<int64_t>(r), allowed[r]});
  }
  if (!outputs.empty()) rows.set(outputs, n_rows, width);
  rank_rows({device.as<float>(), n_rows, width, k, rows.words()}, scratch.as<uint64_t>(),
            {best.as<ops::RankedLogit>(), {}}, Queue());
  const std::vector<ops::RankedLogit> found = download<ops::RankedLogit>(best.data(), static_cast<size_t>(n_rows * k));
  for (int64_t r = 0; r < n_rows; ++r) {
    std::vector<float> row(logits.begin() + r * width, logits.begin() + (r + 1) * width);
    if (!allowed.empty()) forbid(allowed[static_cast<size_t>(r)], row);
    const std::vector<ops::RankedLogit> expected = expected_of(row, k);
    for (size_t i = 0; i < expected.size(); ++i) {
      const ops::RankedLogit& x = found[static_cast<size_t>(r * k) + i];
      ASSERT_TRUE(x.token == expected[i].token && same_bits(x.logit, expected[i].logit))
          << "row " << r << " of " << width << ", place " << i << " of " << k << ": " << x.token << " with " << x.logit
          << ", expected " << expected[i].token << " with " << expected[i].logit;
    }
  }
}

class CudaRank : public testing::TestWithParam<int64_t> {};

TEST_P(CudaRank, IsTheOrderOfASort) {
  ASSAY_REQUIRE_GPU();
  const int64_t width = GetParam();
  for (const int64_t k : {1, 2, 40, 256}) {
    constexpr int64_t kRows = 3;
    std::vector<float> logits = test::random_activations(kRows * width, 70 + static_cast<uint64_t>(width));
    const auto row = [&](int64_t r) {
      return std::span(logits).subspan(static_cast<size_t>(r * width), static_cast<size_t>(width));
    };
    for (float& x : row(1)) x = std::round(4.0f * x) / 4.0f;  // ties, zeros of both signs
    for (size_t i = 0; i < row(2).size(); ++i) {
      if (i % 7 != 3) row(2)[i] = -kInfinity;
    }
    check_rows(logits, kRows, width, k);
    row(0)[static_cast<size_t>(width / 2)] = std::numeric_limits<float>::quiet_NaN();
    row(1)[static_cast<size_t>(width - 1)] = kInfinity;
    check_rows(logits, kRows, width, k);
  }
}

std::vector<uint64_t> words_where(int64_t width, const std::function<bool(int64_t i)>& is_allowed) {
  std::vector<uint64_t> words(static_cast<size_t>((width + 63) / 64),
                              ~uint64_t{0});  // bits behind the row may be anything
  for (int64_t i = 0; i < width; ++i) {
    if (!is_allowed(i)) words[static_cast<size_t>(i / 64)] &= ~(uint64_t{1} << (i % 64));
  }
  return words;
}

// The best of some entries are those of the row in which the others are minus infinity, whatever the others hold; rows
// beside it have their own.
TEST_P(CudaRank, LooksAtWhatIsAllowed) {
  ASSAY_REQUIRE_GPU();
  const int64_t width = GetParam();
  constexpr int64_t kRows = 5;
  for (const int64_t k : {1, 2, 40, 256}) {
    std::vector<float> logits = test::random_activations(kRows * width, 170 + static_cast<uint64_t>(width));
    for (float& x : logits) x = std::round(64.0f * x) / 64.0f;
    const int64_t last = width - 1;
    std::vector<std::vector<uint64_t>> allowed = {
        words_where(width, [](int64_t i) { return i * 2654435761u % 4294967296u % 100 < 30; }),
        {},
        words_where(width, [&](int64_t i) { return i == last; }),
        words_where(width, [](int64_t) { return false; }),
        words_where(width, [](int64_t i) { return i % 64 != 5 && i / 4096 % 2 == 0; }),
    };
    check_rows(logits, kRows, width, k, allowed);
    // What is forbidden may be no number at all; what is allowed may not.
    for (const int64_t r : {0, 2, 4}) {
      for (int64_t i = 0; i < width; ++i) {
        if ((allowed[static_cast<size_t>(r)][static_cast<size_t>(i / 64)] >> (i % 64) & 1) == 0) {
          logits[static_cast<size_t>(r * width + i)] = i % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : kInfinity;
        }
      }
    }
    check_rows(logits, kRows, width, k, allowed);
    logits[static_cast<size_t>(2 * width + last)] = std::numeric_limits<float>::quiet_NaN();
    logits[static_cast<size_t>(width + width / 2)] = kInfinity;
    check_rows(logits, kRows, width, k, allowed);
    allowed[1] = allowed[3];
    check_rows(logits, kRows, width, k, allowed);
  }
}

// Run after run: the batch becomes that of the best tokens, logits and best stay in the place of their position's
// parity.
TEST(CudaRankHandover, IsTheNextRunsBatch) {
  ASSAY_REQUIRE_GPU();
  constexpr int64_t kRows = 3, kRowsMax = 5, kWidth = 9001;
  const DeviceBuffer scratch =
      upload(std::vector<uint64_t>(static_cast<size_t>(rank_scratch_words(kRows, kWidth, 1)), 0));
  const DeviceBuffer tokens = upload(std::vector<int32_t>{5, 6, 7}), positions = upload(std::vector<int32_t>{4, 7, 10});
  const DeviceBuffer tiles = upload(std::vector<TokenTile>{{0, 1, 2, 4}, {1, 1, 0, 7}, {2, 1, 1, 10}});
  const DeviceBuffer kept = poisoned(2 * kRowsMax * kWidth), best = poisoned(2 * 2 * kRowsMax);
  std::vector<std::vector<float>> rows_of(2);
  for (int run = 0; run < 2; ++run) {
    std::vector<float>& logits = rows_of[static_cast<size_t>(run)];
    logits = test::random_activations(kRows * kWidth, 90 + static_cast<uint64_t>(run));
    if (run == 1) logits[kWidth + 3] = std::numeric_limits<float>::quiet_NaN();
    const DeviceBuffer device = upload(logits);
    const Handover next{tokens.as<int32_t>(), positions.as<int32_t>(), tiles.as<TokenTile>(), kept.as<float>(),
                        kRowsMax};
    rank_rows({device.as<float>(), kRows, kWidth, 1}, scratch.as<uint64_t>(), {best.as<ops::RankedLogit>(), next},
              Queue());
    const auto found = download<ops::RankedLogit>(best.data(), 2 * kRowsMax);
    const auto next_tokens = download<int32_t>(tokens.data(), kRows),
               next_positions = download<int32_t>(positions.data(), kRows);
    const auto next_tiles = download<TokenTile>(tiles.data(), kRows);
    for (size_t r = 0; r < kRows; ++r) {
      const int32_t position = std::vector<int32_t>{4, 7, 10}[r] + run;
      const ops::RankedLogit expected = expected_of(std::span(logits).subspan(r * kWidth, kWidth), 1).front();
      const ops::RankedLogit& x = found[static_cast<size_t>(position % 2) * kRowsMax + r];
      EXPECT_TRUE(x.token == expected.token && same_bits(x.logit, expected.logit)) << run << ", row " << r;
      EXPECT_EQ(next_tokens[r], std::max(expected.token, 0));
      EXPECT_EQ(next_positions[r], position + 1);
      EXPECT_EQ(next_tiles[r].position, position + 1);
    }
  }
  const auto stays = download<float>(kept.data(), 2 * kRowsMax * kWidth);
  for (size_t run = 0; run < 2; ++run) {
    for (size_t r = 0; r < kRows; ++r) {
      const size_t place = (std::vector<size_t>{4, 7, 10}[r] + run) % 2;
      const std::span found = std::span(stays).subspan((place * kRowsMax + r) * kWidth, kWidth);
      EXPECT_TRUE(same_floats(found, std::span(rows_of[run]).subspan(r * kWidth, kWidth))) << run << ", row " << r;
    }
  }
}

// A table of a format that the device cuts into parts, or of floats, gives the best tokens' rows; of a row that has
// none, that of token 0.
TEST(CudaRankRows, AreThoseOfTheBestTokens) {
  ASSAY_REQUIRE_GPU();
  constexpr int64_t kRows = 3;
  constexpr float kScale = 1.7f;
  for (const quant::Format& format : quant::all_formats()) {
    for (const auto& [n_tokens, cols] : {std::pair<int64_t, int64_t>{5000, 256}, {40, 8448}}) {
      const std::vector<std::byte> bytes = test::random_weights(format, n_tokens * cols, 5);
      const Uploaded table = lay(format.dtype, n_tokens, cols, bytes, false);
      if (find_unpack_row({format.dtype, cols, table.matrix.parts.n > 1}).kernel != UnpackKernel::eights) continue;
      const DeviceBuffer scratch =
          upload(std::vector<uint64_t>(static_cast<size_t>(rank_scratch_words(kRows, n_tokens, 1)), 0));
      const DeviceBuffer tokens = upload(std::vector<int32_t>(kRows, 1)),
                         positions = upload(std::vector<int32_t>(kRows, 4));
      const DeviceBuffer tiles = upload(std::vector<TokenTile>(kRows)),
                         kept = poisoned(static_cast<size_t>(2 * kRows * n_tokens));
      const DeviceBuffer best = poisoned(2 * 2 * kRows), y = poisoned(static_cast<size_t>(kRows * cols));
      std::vector<float> logits = test::random_activations(kRows * n_tokens, 8);
      logits[static_cast<size_t>(n_tokens) + 7] = std::numeric_limits<float>::quiet_NaN();
      const DeviceBuffer device = upload(logits);
      const Handover next{tokens.as<int32_t>(), positions.as<int32_t>(), tiles.as<TokenTile>(), kept.as<float>(),
                          kRows};
      const RankOutputs out{best.as<ops::RankedLogit>(), next, {table.matrix, kScale, y.as<float>()}};
      rank_rows({device.as<float>(), kRows, n_tokens, 1}, scratch.as<uint64_t>(), out, Queue());
      std::vector<float> expected(static_cast<size_t>(kRows * cols));
      for (int64_t r = 0; r < kRows; ++r) {
        const int32_t token =
            expected_of(std::span(logits).subspan(static_cast<size_t>(r * n_tokens), static_cast<size_t>(n_tokens)),
                        1)[0]
                .token;
        const size_t row_bytes = bytes.size() / static_cast<size_t>(n_tokens);
        ops::embed_ref(format, bytes.data() + static_cast<size_t>(std::max(token, 0)) * row_bytes, cols, kScale,
                       expected.data() + r * cols);
      }
      EXPECT_TRUE(same_floats(download<float>(y.data(), expected.size()), expected))
          << tensor::traits(format.dtype).name << ", " << cols;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, CudaRank, testing::Values(1, 40, 4095, 4096, 4097, 32000, 128256, 300001),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace assay::backend::cuda
