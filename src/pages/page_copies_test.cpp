// Images on their way, by a mover that is late: sequences hold what they held whatever is copied beside them, and a
// page that leaves is given to nobody before it has left.
#include "pages/page_copies.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "assay/error.h"
#include "support/random_numbers.h"
#include "support/rounds.h"

namespace assay::pages {
namespace {

using Page = std::array<int, kPagePositions>;  // a seed a position
constexpr int64_t kPoolPages = 14, kSequences = 4, kPositions = 400;

// Copies are made when somebody looks for their end, in their order; not while the gate is shut.
class LateMover final : public PageMover {
 public:
  LateMover() : pools_{std::vector<Page>(kPoolPages), std::vector<Page>(kPoolPages)} {}
  int n_places() const noexcept override { return 3; }
  std::byte* place(int i) noexcept override { return reinterpret_cast<std::byte*>(&places_[static_cast<size_t>(i)]); }
  int mark() override { return ++n_marks_; }
  void begin() override {}
  void start_read(const CachePage& page, int place, int mark) override { start({true, page, place, mark}); }
  void start_write(int place, const CachePage& page, int mark) override { start({false, page, place, mark}); }
  bool is_over(int place) override {
    if (gate_is_open && random_.below(2) == 0) copy_to(place);
    return !is_under_way(place);
  }
  void wait(int place) override {
    while (!gate_is_open) std::this_thread::yield();
    copy_to(place);
  }
  Page& page(bool window, int32_t i) { return pools_[window ? 1 : 0][static_cast<size_t>(i)]; }

  std::atomic<bool> gate_is_open = true, fails = false;

 private:
  struct Copy {
    bool reads;
    CachePage page;
    int place, mark;
  };
  void start(const Copy& copy) {
    if (fails) throw Error(Errc::device, "a device that is gone");
    EXPECT_GE(copy.mark, last_mark_);
    last_mark_ = copy.mark;
    copies_.push_back(copy);
  }
  bool is_under_way(int place) const {
    return std::any_of(copies_.begin(), copies_.end(), [&](const Copy& copy) { return copy.place == place; });
  }
  void copy_to(int place) {
    while (is_under_way(place)) {
      const Copy copy = copies_.front();
      auto& image = places_[static_cast<size_t>(copy.place)];
      for (const bool window : {false, true}) {
        const int32_t i = window ? copy.page.window : copy.page.all;
        if (i == PageTables::kNoPage) continue;
        (copy.reads ? image[window] : page(window, i)) = copy.reads ? page(window, i) : image[window];
      }
      copies_.pop_front();
    }
  }

  std::vector<Page> pools_[2];
  std::array<std::array<Page, 2>, 3> places_ = {};
  std::deque<Copy> copies_;
  int n_marks_ = 0, last_mark_ = 0;
  test::Random random_{9};
};

int64_t seen_before(int64_t position) { return std::max<int64_t>(0, position - 99); }

class PageCopiesTest : public ::testing::Test {
 protected:
  struct Saved {
    std::vector<int> seeds;
    std::vector<std::vector<std::byte>> images;
    base::PendingCopies read, written;
  };

  bool append(int64_t s, int64_t n) {
    if (tables_.n_needed(s, n) > tables_.n_free()) return false;
    copies_.make_ready(s);
    copies_.free_up(tables_.n_needed(s, n));
    copy_own(tables_.extend(s, n));
    std::vector<int>& seeds = held_[s];
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<int64_t>(seeds.size());
      seeds.push_back(++last_seed_);
      const CachePage page = tables_.page(s, at / kPagePositions);
      for (const bool window : {false, true}) {
        mover_.page(window, window ? page.window : page.all)[static_cast<size_t>(at % kPagePositions)] = last_seed_;
      }
    }
    return true;
  }
  void copy_own(const CacheCopies& copies) {
    if (copies.all) mover_.page(false, copies.all->to) = mover_.page(false, copies.all->from);
    if (copies.window) mover_.page(true, copies.window->to) = mover_.page(true, copies.window->from);
  }
  void truncate(int64_t s, int64_t n) {
    n = tables_.n_usable(s, n);
    tables_.truncate(s, n);
    held_[s].resize(static_cast<size_t>(n));
  }
  bool fork(int64_t from, int64_t n, int64_t to) {
    n = tables_.n_usable(from, n);
    truncate(to, 0);
    if (tables_.n_free() == 0) return false;
    copies_.make_ready(from);
    copies_.free_up(1);
    copy_own(tables_.fork(from, n, to));
    held_[to].assign(held_[from].begin(), held_[from].begin() + n);
    return true;
  }
  void save(int64_t s) {
    auto saved = std::make_unique<Saved>();
    saved->seeds = held_[s];
    const int64_t n_pages = pages_of(tables_.n_positions(s));
    for (int64_t i = 0; i < n_pages; ++i) {
      const bool whole = tables_.holds_window(s, i);
      saved->images.emplace_back((whole ? 2 : 1) * sizeof(Page));
    }
    for (int64_t i = 0; i < n_pages; ++i) {
      copies_.read(tables_.page(s, i), saved->images[static_cast<size_t>(i)], saved->read);
    }
    saved_.push_back(std::move(saved));
  }
  void restore(Saved& saved, int64_t s) {
    ASSERT_TRUE(saved.read.wait());
    truncate(s, 0);
    const auto n = static_cast<int64_t>(saved.seeds.size());
    for (int64_t at = 0; at < n && tables_.n_free() > 0; at += kPagePositions) {
      copies_.free_up(1);
      const std::vector<std::byte>& image = saved.images[static_cast<size_t>(at / kPagePositions)];
      const int64_t n_more = std::min(kPagePositions, n - at);
      tables_.append_page(s, n_more, image.size() == 2 * sizeof(Page));
      copies_.write(image, tables_.page(s, at / kPagePositions), saved.written);
      held_[s].insert(held_[s].end(), saved.seeds.begin() + at, saved.seeds.begin() + at + n_more);
    }
    truncate(s, tables_.n_positions(s));
  }
  void expect_held(int64_t s) {
    copies_.make_ready(s);
    const std::vector<int>& seeds = held_[s];
    ASSERT_EQ(tables_.n_positions(s), static_cast<int64_t>(seeds.size()));
    for (size_t at = 0; at < seeds.size(); ++at) {
      const CachePage page = tables_.page(s, static_cast<int64_t>(at) / kPagePositions);
      const size_t i = at % kPagePositions;
      ASSERT_EQ(mover_.page(false, page.all)[i], seeds[at]) << s << " at " << at;
      if (page.window == PageTables::kNoPage) continue;
      ASSERT_EQ(mover_.page(true, page.window)[i], seeds[at]) << s << " at " << at;
    }
  }

  LateMover mover_;
  CacheTables tables_{kSequences, kPositions, kPoolPages, seen_before, kPoolPages};
  std::map<int64_t, std::vector<int>> held_;
  std::vector<std::unique_ptr<Saved>> saved_;  // outlive the copies
  int last_seed_ = 0;
  PageCopies copies_{tables_, mover_};
};

TEST_F(PageCopiesTest, AnyOrderOfOperationsUnderWantOfPages) {
  test::Random random(3);
  for (int i = 0; i < test::unless_sanitized(6000, 1500); ++i) {
    const int64_t s = random.below(kSequences), n = static_cast<int64_t>(held_[s].size());
    const int what = random.below(12);
    if (what < 4) {
      append(s, std::min<int64_t>(1 + random.below(120), kPositions - n));
    } else if (what < 6) {
      truncate(s, random.below(static_cast<int>(n) + 1));
    } else if (what < 7) {
      const int64_t from = random.below(kSequences);
      if (from != s) fork(from, random.below(static_cast<int>(held_[from].size()) + 1), s);
    } else if (what < 8) {
      tables_.forget(s, random.below(static_cast<int>(n) + 1), n);
    } else if (what < 10) {
      save(s);
    } else if (!saved_.empty()) {
      restore(*saved_.back(), s);
    }
    std::erase_if(saved_, [&](const auto& saved) {
      return saved_.size() > 6 && saved->read.is_over() && saved->written.is_over();
    });
    if (i % 5 == 0) expect_held(random.below(kSequences));
    if (HasFailure()) return;
  }
  for (int64_t s = 0; s < kSequences; ++s) truncate(s, 0);
  EXPECT_EQ(tables_.n_free(), kPoolPages);
  copies_.finish();
  EXPECT_EQ(tables_.n_ready(), kPoolPages);
}

TEST_F(PageCopiesTest, APageThatLeavesIsGivenToNobody) {
  ASSERT_TRUE(append(0, 5 * kPagePositions));
  const std::vector<int> seeds = held_[0];
  mover_.gate_is_open = false;
  save(0);
  truncate(0, 0);
  EXPECT_EQ(tables_.n_free(), kPoolPages);
  EXPECT_EQ(tables_.n_ready(), kPoolPages - 5);
  EXPECT_TRUE(copies_.is_ready(0));
  ASSERT_TRUE(append(1, 3 * kPagePositions));  // beside it, without waiting
  EXPECT_FALSE(saved_.back()->read.is_over());
  mover_.gate_is_open = true;
  ASSERT_TRUE(append(2, kPositions));
  ASSERT_TRUE(append(3, 4 * kPagePositions));  // the last pages: once they have left
  restore(*saved_.back(), 1);
  EXPECT_EQ(tables_.n_positions(1), 3 * kPagePositions);
  for (int64_t s = 0; s < kSequences; ++s) expect_held(s);
  held_[1].resize(seeds.size());
  truncate(2, 0);
  restore(*saved_.back(), 1);
  EXPECT_EQ(held_[1], seeds);
  expect_held(1);
}

// Who goes on behind what is read or written waits; others do not.
TEST_F(PageCopiesTest, ASequenceIsReadyWhenItsPagesAre) {
  ASSERT_TRUE(append(0, 100));
  ASSERT_TRUE(append(1, 100));
  mover_.gate_is_open = false;
  save(0);
  EXPECT_FALSE(copies_.is_ready(0));  // it would write into the page that leaves
  EXPECT_TRUE(copies_.is_ready(1));
  mover_.gate_is_open = true;
  copies_.make_ready(0);
  copies_.finish();
  ASSERT_TRUE(saved_.back()->read.wait());
  mover_.gate_is_open = false;
  restore(*saved_.back(), 2);
  EXPECT_FALSE(copies_.is_ready(2));
  EXPECT_TRUE(copies_.is_ready(0));
  mover_.gate_is_open = true;
  for (const int64_t s : {0, 1, 2}) expect_held(s);
}

TEST_F(PageCopiesTest, AFailureIsToldToWhoWaitsAndToWhoRuns) {
  ASSERT_TRUE(append(0, 100));
  mover_.fails = true;
  save(0);
  EXPECT_FALSE(saved_.back()->read.wait());
  EXPECT_THROW(copies_.finish(), Error);
  EXPECT_THROW(copies_.make_ready(1), Error);
  EXPECT_TRUE(copies_.is_ready(0));
  EXPECT_EQ(tables_.n_ready(), tables_.n_free());
}

}  // namespace
}  // namespace assay::pages
