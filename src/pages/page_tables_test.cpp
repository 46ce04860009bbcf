// Tables of pages against sequences that are plain lists: whatever is appended, forked and cut, a position reads what
// was written there, and no page is lost.
#include "pages/page_tables.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <vector>

#include "support/random_numbers.h"

namespace assay::pages {
namespace {

constexpr int64_t kTables = 6, kPages = 24, kMax = 320;

// A pool with memory of one number a position, and beside it what each sequence should read.
struct Model {
  PageTables tables{kTables, kMax, kPages};
  std::map<int32_t, std::array<int, kPagePositions>> memory;
  std::array<std::vector<int>, kTables> expected;
  int next = 1;

  void copy(const std::optional<PageCopy>& copy) {
    if (copy) memory[copy->to] = memory[copy->from];
  }
  bool append(int64_t table, int64_t n) {
    auto& list = expected[static_cast<size_t>(table)];
    if (static_cast<int64_t>(list.size()) + n > kMax || tables.n_needed(table, n) > tables.pool().n_free())
      return false;
    const int64_t free_before = tables.pool().n_free(), needed = tables.n_needed(table, n);
    const auto from = static_cast<int64_t>(list.size());
    copy(tables.extend(table, n));
    EXPECT_EQ(tables.pool().n_free(), free_before - needed);
    for (int64_t i = from; i < from + n; ++i) {
      list.push_back(next);
      memory[tables.table(table)[i / kPagePositions]][static_cast<size_t>(i % kPagePositions)] = next++;
    }
    return true;
  }
  void truncate(int64_t table, int64_t n) {
    auto& list = expected[static_cast<size_t>(table)];
    list.resize(std::min(list.size(), static_cast<size_t>(n)));
    tables.truncate(table, n);
  }
  void fork(int64_t from, int64_t n, int64_t to) {
    const auto& source = expected[static_cast<size_t>(from)];
    truncate(to, 0);
    if (n % kPagePositions != 0 && tables.pool().n_free() == 0) return;
    expected[static_cast<size_t>(to)].assign(source.begin(), source.begin() + n);
    copy(tables.fork(from, n, to));
  }
  void check() const {
    std::set<int32_t> used;
    for (int64_t t = 0; t < kTables; ++t) {
      const auto& list = expected[static_cast<size_t>(t)];
      ASSERT_EQ(tables.n_positions(t), static_cast<int64_t>(list.size()));
      for (size_t i = 0; i < list.size(); ++i) {
        const int32_t page = tables.table(t)[i / kPagePositions];
        used.insert(page);
        ASSERT_EQ(memory.at(page)[i % kPagePositions], list[i]) << "table " << t << ", position " << i;
      }
    }
    ASSERT_EQ(tables.pool().n_free(), kPages - static_cast<int64_t>(used.size()));
  }
};

TEST(PageTables, AForkSharesFullPagesAndCopiesTheLast) {
  Model m;
  m.append(0, 150);
  m.fork(0, 150, 1);
  EXPECT_EQ(m.tables.pool().n_free(), kPages - 4);
  m.append(0, 5);
  m.append(1, 7);
  m.check();
  EXPECT_EQ(m.tables.pool().n_free(), kPages - 4);
  m.fork(0, 128, 2);  // on a page's border nothing is copied
  EXPECT_EQ(m.tables.pool().n_free(), kPages - 4);
  m.truncate(0, 100);  // its last page is shared now, and not full
  EXPECT_EQ(m.tables.n_needed(0, 1), 1);
  m.append(0, 1);
  m.check();
}

TEST(PageTables, AnyOrderOfAppendingForkingAndCutting) {
  for (const uint64_t seed : {1, 2, 3}) {
    test::Random random(seed);
    Model m;
    for (int i = 0; i < 3'000; ++i) {
      const int64_t table = random.below(kTables), other = random.below(kTables);
      const auto size = static_cast<int>(m.expected[static_cast<size_t>(table)].size());
      switch (random.below(4)) {
        case 0:
          m.truncate(table, random.below(size + 1));
          break;
        case 1:
          if (table != other) m.fork(table, random.below(size + 1), other);
          break;
        default:
          m.append(table, random.below(90));
          break;
      }
      m.check();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", step " << i;
    }
    for (int64_t t = 0; t < kTables; ++t) m.truncate(t, 0);
    EXPECT_EQ(m.tables.pool().n_free(), kPages);
  }
}

}  // namespace
}  // namespace assay::pages
