// See page_copies.h.
#include "pages/page_copies.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "assay/error.h"

namespace assay::pages {

PageCopies::~PageCopies() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  asked_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PageCopies::read(const CachePage& page, std::span<std::byte> image, base::PendingCopies& pending) {
  add({.reads = true, .page = page, .image = image.data(), .bytes = image.size(), .pending = &pending});
}

void PageCopies::write(std::span<const std::byte> image, const CachePage& page, base::PendingCopies& pending) {
  add({.reads = false, .page = page, .source = image.data(), .bytes = image.size(), .pending = &pending});
}

void PageCopies::add(Copy copy) {
  copy.mark = mover_.mark();
  try {
    const std::lock_guard lock(mutex_);
    over_.reserve(static_cast<size_t>(n_open_) + 1);
    if (!copy.reads) written_.reserve(written_.size() + 1);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    waiting_.push_back(copy);
    copy.pending->begin();
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, "no memory for a copy of a page");
  } catch (const std::system_error& error) {
    throw Error(Errc::out_of_memory, std::string("no thread for copies of pages: ") + error.what());
  }
  asked_.notify_one();
  ++n_open_;
  tables_.pin(copy.page);
  if (!copy.reads) written_.push_back(copy.page);
}

// What has left the pool is nobody's business any more.
void PageCopies::collect() {
  const std::lock_guard lock(mutex_);
  for (const Copy& copy : over_) {
    tables_.unpin(copy.page);
    --n_open_;
    if (copy.reads) continue;
    const auto is_same = [&](const CachePage& page) { return page.all == copy.page.all; };
    written_.erase(std::find_if(written_.begin(), written_.end(), is_same));
  }
  over_.clear();
  failed_ = failure_;
}

template <class Condition>
void PageCopies::wait_until(const Condition& holds) {
  if (n_open_ > 0) collect();
  while (n_open_ > 0 && !holds()) {
    {
      std::unique_lock lock(mutex_);
      left_.wait(lock, [this] { return !over_.empty(); });
    }
    collect();
  }
  if (failed_) std::rethrow_exception(failed_);
}

bool PageCopies::holds_ready(int64_t table) const noexcept {
  const int64_t n = tables_.n_positions(table), n_pages = pages_of(n);
  if (n % kPagePositions != 0 && tables_.is_pinned(tables_.page(table, n_pages - 1))) return false;
  const auto is_of_table = [&](const CachePage& written) {
    const int32_t* pages = tables_.all().table(table);
    return std::find(pages, pages + n_pages, written.all) != pages + n_pages;
  };
  return std::none_of(written_.begin(), written_.end(), is_of_table);
}

bool PageCopies::is_ready(int64_t table) {
  if (n_open_ > 0) collect();
  return n_open_ == 0 || failed_ || holds_ready(table);
}

void PageCopies::make_ready(int64_t table) {
  wait_until([&] { return holds_ready(table); });
}

void PageCopies::free_up(int64_t n_pages) {
  wait_until([&] { return tables_.n_ready() >= n_pages; });
}

void PageCopies::finish() {
  wait_until([] { return false; });
}

void PageCopies::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    asked_.wait(lock, [this] { return ends_ || !waiting_.empty() || !under_way_.empty(); });
    if (waiting_.empty() && under_way_.empty()) return;
    const bool starts = !waiting_.empty() && (!has_begun_ || !free_places_.empty());
    Copy next;
    if (starts) {
      next = waiting_.front();
      waiting_.pop_front();
    }
    lock.unlock();
    if (!starts) {
      end_oldest();
    } else {
      try {
        if (!has_begun_) begin();
        start(next);
      } catch (...) {
        fail(next);
      }
    }
    lock.lock();
  }
}

void PageCopies::begin() {
  mover_.begin();
  const int n_places = mover_.n_places();
  free_places_.clear();
  free_places_.reserve(static_cast<size_t>(n_places));
  under_way_.reserve(static_cast<size_t>(n_places));
  for (int i = n_places; i-- > 0;) free_places_.push_back(i);
  has_begun_ = true;
}

void PageCopies::start(Copy& copy) {
  copy.place = free_places_.back();
  if (copy.reads) {
    mover_.start_read(copy.page, copy.place, copy.mark);
  } else {
    std::memcpy(mover_.place(copy.place), copy.source, copy.bytes);
    mover_.start_write(copy.place, copy.page, copy.mark);
    std::exchange(copy.pending, nullptr)->end(true);
  }
  under_way_.push_back(copy);
  free_places_.pop_back();
}

// Those behind the oldest may have left the pool as well: who waits for their pages does not wait for its image.
void PageCopies::end_oldest() {
  Copy& oldest = under_way_.front();
  try {
    mover_.wait(oldest.place);
    for (Copy& copy : under_way_) {
      if (!copy.has_left && &copy != &oldest && !mover_.is_over(copy.place)) break;
      if (!copy.has_left) leave_pool(copy);
    }
    if (oldest.reads) {
      std::memcpy(oldest.image, mover_.place(oldest.place), oldest.bytes);
      std::exchange(oldest.pending, nullptr)->end(true);
    }
  } catch (...) {
    fail(oldest);
  }
  free_places_.push_back(oldest.place);
  under_way_.erase(under_way_.begin());
}

void PageCopies::leave_pool(Copy& copy) {
  copy.has_left = true;
  {
    const std::lock_guard lock(mutex_);
    over_.push_back(copy);
  }
  left_.notify_all();
}

void PageCopies::fail(Copy& copy) {
  if (base::PendingCopies* pending = std::exchange(copy.pending, nullptr)) pending->end(false);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  if (!copy.has_left) leave_pool(copy);
}

}  // namespace assay::pages
