// Layers with a window or chunks that give back what lies behind: whatever is run, cut, forked and moved, a token's
// logits are those of a cache that keeps everything, and a place whose window is gone is never run from.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "assay/error.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "support/random_numbers.h"
#include "support/rounds.h"
#include "support/tiny_plan.h"

namespace assay::backend::cpu {
namespace {

constexpr int kSequences = 4;
constexpr int64_t kPositions = 400;

ops::ExecutorOptions options(int n_sequences) {
  ops::ExecutorOptions o;
  o.n_ctx = kPositions;
  o.n_batch_max = kPositions;
  o.n_outputs_max = 1;
  o.n_sequences = n_sequences;
  return o;
}

// Layers 0 and 2 look back over 40 positions, or within chunks of 100.
struct Small {
  test::TinyPlan tiny;
  explicit Small(bool in_chunks) : tiny({.n_layers = 3, .window = 40}) {
    for (ops::Op& op : tiny.plan.ops) {
      auto* attention = op.as<ops::Attention>();
      if (in_chunks && attention != nullptr && attention->window > 0) attention->window = 0, attention->chunk = 100;
    }
  }
};

// The bits of the last token's logits.
std::vector<uint32_t> run(ops::Executor& executor, int sequence, std::span<const int32_t> ids) {
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(executor.n_positions(sequence)));
  const std::vector<int32_t> sequences(ids.size(), sequence);
  std::vector<uint8_t> outputs(ids.size());
  outputs.back() = 1;
  executor.run({ids, positions, sequences, outputs});
  std::vector<uint32_t> bits;
  for (const float x : executor.logits(0)) bits.push_back(std::bit_cast<uint32_t>(x));
  return bits;
}

std::vector<int32_t> tokens(test::Random& random, int n) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(random.below(64));
  return ids;
}

TEST(WindowPages, AnyOrderHasTheBitsOfACacheThatKeepsAll) {
  for (const bool in_chunks : {false, true}) {
    const Small small(in_chunks);
    base::ThreadPool pool(1);
    const auto executor = make_cpu_executor(small.tiny.plan, options(kSequences), {best_kernel_set()}, pool);
    const auto whole = make_cpu_executor(small.tiny.plan, options(1), {best_kernel_set()}, pool);
    std::vector<int32_t> held[kSequences];
    test::Random random(in_chunks ? 3 : 4);
    int n_short = 0;  // cuts that went back further
    for (int i = 0; i < test::unless_sanitized(700, 100); ++i) {
      const int s = random.below(kSequences), other = (s + 1 + random.below(kSequences - 1)) % kSequences;
      const auto size = static_cast<int>(held[s].size());
      const int64_t n = random.below(size + 1);
      switch (random.below(12)) {
        case 0: executor->forget(s, 0, size); break;
        case 1: executor->forget(s, std::min<int64_t>(n, random.below(size + 1)), size); break;
        case 2: {
          const int64_t usable = executor->n_usable(s, n);
          executor->truncate(s, n);
          ASSERT_EQ(executor->n_positions(s), usable);
          n_short += usable < n ? 1 : 0;
          held[s].resize(static_cast<size_t>(usable));
          break;
        }
        case 3: {
          const bool is_usable = executor->n_usable(s, n) == n;
          ASSERT_EQ(executor->fork(s, n, other), is_usable);
          if (is_usable) held[other].assign(held[s].begin(), held[s].begin() + n);
          break;
        }
        case 4: {  // out and in again, page by page
          executor->truncate(other, 0);
          const ops::CachePages pages = executor->pages();
          for (int64_t at = 0; at < size; at += pages.n_positions) {
            const int64_t i_page = at / pages.n_positions;
            std::vector<std::byte> image(pages.page_bytes);
            ASSERT_EQ(executor->read_page(s, i_page, image), executor->holds_window(s, i_page));
            if (!executor->holds_window(s, i_page)) image.resize(pages.page_bytes - pages.window_bytes);
            ASSERT_TRUE(executor->read_page(s, i_page, image));
            ASSERT_TRUE(executor->append_page(other, std::min<int64_t>(pages.n_positions, size - at), image));
          }
          for (int64_t length = 0; length <= size; ++length)
            ASSERT_EQ(executor->n_usable(other, length), executor->n_usable(s, length));
          held[other] = held[s];
          break;
        }
        default: {
          if (size > 330) break;
          const std::vector<int32_t> more = tokens(random, 1 + random.below(60));
          held[s].insert(held[s].end(), more.begin(), more.end());
          whole->truncate(0, 0);
          ASSERT_EQ(run(*executor, s, more), run(*whole, 0, held[s])) << "step " << i;
          break;
        }
      }
    }
    EXPECT_GT(n_short, test::unless_sanitized(5, -1));
    EXPECT_GT(executor->pages().used_bytes, 0u);
    for (int s = 0; s < kSequences; ++s) executor->truncate(s, 0);
    EXPECT_EQ(executor->pages().used_bytes, 0u);
    EXPECT_EQ(executor->pages().n_free, executor->pages().n_pages);
  }
}

TEST(WindowPages, MemoryInUseIsBoundedByTheWindow) {
  const Small small(false);
  base::ThreadPool pool(1);
  const auto executor = make_cpu_executor(small.tiny.plan, options(1), {best_kernel_set()}, pool);
  const ops::CachePages pages = executor->pages();
  test::Random random(5);
  ASSERT_EQ(pages.window_bytes, pages.page_bytes / 3 * 2);
  for (int i = 0; i < 40; ++i) {
    run(*executor, 0, tokens(random, 10));
    const int64_t n = executor->n_positions(0), n_pages = (n + 63) / 64;
    executor->forget(0, 0, n);
    EXPECT_LE(executor->pages().used_bytes,
              static_cast<size_t>(n_pages) * (pages.page_bytes - pages.window_bytes) + 2 * pages.window_bytes);
  }
}

TEST(WindowPages, WhatIsGoneIsNeitherRunFromNorShown) {
  const Small small(false);
  base::ThreadPool pool(1);
  const auto executor = make_cpu_executor(small.tiny.plan, options(2), {best_kernel_set()}, pool);
  test::Random random(6);
  run(*executor, 0, tokens(random, 200));
  executor->forget(0, 0, 200);
  EXPECT_THROW(executor->visit_cache(0, [](std::span<const std::byte>) {}), Error);
  EXPECT_FALSE(executor->fork(0, 100, 1));
  EXPECT_EQ(executor->n_positions(1), 0);
  const ops::CachePages pages = executor->pages();
  const std::vector<std::byte> image(pages.page_bytes - pages.window_bytes);
  ASSERT_TRUE(executor->append_page(1, 64, image));
  EXPECT_THROW(run(*executor, 1, tokens(random, 1)), Error);  // nobody cut it to what it has
  executor->truncate(1, 64);
  EXPECT_EQ(executor->n_positions(1), 0);
  run(*executor, 1, tokens(random, 1));
  executor->truncate(0, 100);
  EXPECT_EQ(executor->n_positions(0), 0);
}

}  // namespace
}  // namespace assay::backend::cpu
