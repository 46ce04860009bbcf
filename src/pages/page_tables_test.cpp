// Tables of pages against sequences that are plain lists: whatever is appended, forked and cut, a position reads what
// was written there, and no page is lost.
#include "pages/page_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
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
        case 0: m.truncate(table, random.below(size + 1)); break;
        case 1:
          if (table != other) m.fork(table, random.below(size + 1), other);
          break;
        default: m.append(table, random.below(90)); break;
      }
      m.check();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", step " << i;
    }
    for (int64_t t = 0; t < kTables; ++t) m.truncate(t, 0);
    EXPECT_EQ(m.tables.pool().n_free(), kPages);
  }
}

// Tables that give back what lies behind a window or in an earlier chunk, against lists of what they hold.
struct Windowed : Model {
  PageTables::FirstSeen first_seen;
  explicit Windowed(PageTables::FirstSeen f) : first_seen(std::move(f)) {}

  // Told from the start: whether all that a token at position n sees, and the page it is written into, is there.
  bool is_usable(int64_t table, int64_t n) const {
    if (n % kPagePositions != 0 && !tables.holds(table, n / kPagePositions)) return false;
    for (int64_t i = first_seen(n); i < n; ++i) {
      if (!tables.holds(table, i / kPagePositions)) return false;
    }
    return true;
  }
  std::vector<int64_t> usable(int64_t table) const {
    std::vector<int64_t> lengths;
    for (int64_t n = 0; n <= tables.n_positions(table); ++n) {
      if (is_usable(table, n)) lengths.push_back(n);
      EXPECT_EQ(tables.n_usable(table, n, first_seen), lengths.back()) << "of " << n;
    }
    return lengths;
  }
  void forget(int64_t table, int64_t begin, int64_t end) {
    if (begin > end) std::swap(begin, end);
    const std::vector<int64_t> before = usable(table);
    tables.forget(table, begin, end, first_seen);
    for (const int64_t n : before) {
      if (n > begin && n < end) continue;
      EXPECT_TRUE(is_usable(table, n)) << n << ", forgotten " << begin << " to " << end;
    }
    for (int64_t i = 0; i < pages_of(tables.n_positions(table)); ++i) {  // and nothing stays that nobody needs
      const bool is_needed = i * kPagePositions < begin || first_seen(end) < (i + 1) * kPagePositions;
      EXPECT_TRUE(is_needed || !tables.holds(table, i)) << "page " << i << ", forgotten " << begin << " to " << end;
    }
  }
  void check_held() const {
    std::set<int32_t> used;
    for (int64_t t = 0; t < kTables; ++t) {
      const auto& list = expected[static_cast<size_t>(t)];
      ASSERT_EQ(tables.n_positions(t), static_cast<int64_t>(list.size()));
      for (size_t i = 0; i < list.size(); ++i) {
        if (!tables.holds(t, static_cast<int64_t>(i) / kPagePositions)) continue;
        const int32_t page = tables.table(t)[i / kPagePositions];
        used.insert(page);
        ASSERT_EQ(memory.at(page)[i % kPagePositions], list[i]) << "table " << t << ", position " << i;
      }
    }
    ASSERT_EQ(tables.pool().n_free(), kPages - static_cast<int64_t>(used.size()));
  }
};

PageTables::FirstSeen in_window(int64_t window) {
  return [window](int64_t position) { return std::max<int64_t>(0, position - window + 1); };
}

TEST(PageTables, WhatLiesBehindTheWindowIsGivenBack) {
  Windowed m(in_window(70));
  m.append(0, 300);
  m.fork(0, 300, 1);
  m.forget(0, 0, 300);  // a token at 300 sees 231 and later
  EXPECT_EQ(m.tables.pool().n_free(), kPages - 6);
  for (const int64_t i : {0, 1, 2}) EXPECT_FALSE(m.tables.holds(0, i));
  EXPECT_EQ(m.tables.n_usable(0, 290, m.first_seen), 290);  // page 3 holds what it sees
  EXPECT_EQ(m.tables.n_usable(0, 260, m.first_seen), 0);
  m.forget(1, 64, 300);
  EXPECT_EQ(m.tables.n_usable(1, 299, m.first_seen), 299);
  EXPECT_EQ(m.tables.n_usable(1, 260, m.first_seen), 64);
  EXPECT_EQ(m.tables.pool().n_free(), kPages - 4);
  m.append(0, 1);
  m.truncate(1, 0);
  EXPECT_EQ(m.tables.pool().n_free(), kPages - 2);
  m.check_held();
}

TEST(PageTables, AChunkGivesBackTheOnesBeforeIt) {
  Windowed m([](int64_t position) { return position / 100 * 100; });
  m.append(0, 199);
  m.forget(0, 0, 199);
  EXPECT_FALSE(m.tables.holds(0, 0));
  EXPECT_TRUE(m.tables.holds(0, 1));
  m.append(0, 1);
  m.forget(0, 0, 200);
  EXPECT_FALSE(m.tables.holds(0, 2));
  EXPECT_TRUE(m.tables.holds(0, 3));
}

TEST(PageTables, AnyOrderWithWindows) {
  const PageTables::FirstSeen in_chunk = [](int64_t position) { return position / 90 * 90; };
  for (const auto& first_seen : {in_window(1), in_window(20), in_window(64), in_window(130), in_chunk}) {
    test::Random random(7);
    Windowed m(first_seen);
    for (int i = 0; i < 600; ++i) {
      const int64_t table = random.below(kTables), other = random.below(kTables);
      const auto size = static_cast<int>(m.expected[static_cast<size_t>(table)].size());
      const int64_t n = m.tables.n_usable(table, random.below(size + 1), first_seen);
      switch (random.below(6)) {
        case 0: m.truncate(table, n); break;
        case 1:
          if (table != other) m.fork(table, n, other);
          break;
        case 2: m.forget(table, random.below(size + 1), random.below(size + 1)); break;
        case 3: m.forget(table, 0, size); break;
        default:
          if (m.is_usable(table, size)) m.append(table, random.below(90));
          break;
      }
      m.check_held();
      if (testing::Test::HasFailure()) FAIL() << "step " << i;
    }
    for (int64_t t = 0; t < kTables; ++t) m.truncate(t, 0);
    EXPECT_EQ(m.tables.pool().n_free(), kPages);
  }
}

}  // namespace
}  // namespace assay::pages
