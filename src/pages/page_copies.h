// Images of pages on their way between a pool on a device and the host's memory, beside what goes on there: a thread
// moves them through a few places that the device reads and writes by itself.
//
//   read    page --mover--> place --thread--> image     the page is pinned until it lies in the place
//   write   image --thread--> place --mover--> page     the image is free once it lies in the place, the page is pinned
//                                                       until it is whole
//
// So a page that leaves is given to nobody before it has left, and who runs a sequence waits for what comes to it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/pending_copies.h"
#include "pages/cache_tables.h"

namespace assay::pages {

// The device's side. mark() is called by the thread that runs on the device, the others by the one that copies, begin()
// first. Copies end in the order in which they were started. Whatever throws ends with the copies.
class PageMover {
 public:
  virtual ~PageMover() = default;
  virtual int n_places() const noexcept = 0;
  virtual std::byte* place(int i) noexcept = 0;  // of an image each
  virtual int mark() = 0;                        // what runs now: a copy with this mark comes behind it
  virtual void begin() = 0;
  virtual void start_read(const CachePage& page, int place, int mark) = 0;
  virtual void start_write(int place, const CachePage& page, int mark) = 0;
  virtual bool is_over(int place) = 0;
  virtual void wait(int place) = 0;
};

// All but the thread's own work is called by the thread that runs on the device, which has the tables.
class PageCopies {
 public:
  PageCopies(CacheTables& tables, PageMover& mover) : tables_(tables), mover_(mover) {}
  ~PageCopies();  // once all are over
  PageCopies(const PageCopies&) = delete;
  PageCopies& operator=(const PageCopies&) = delete;

  // Of a page without a part for the windows' layers, an image without it. Error(out_of_memory), and nothing has begun:
  // there is no memory or thread for it.
  void read(const CachePage& page, std::span<std::byte> image, base::PendingCopies& pending);
  void write(std::span<const std::byte> image, const CachePage& page, base::PendingCopies& pending);

  bool are_idle() const noexcept { return n_open_ == 0 && !failed_; }
  // Whether all that the table holds is written, and its last page may be written into; also where a copy has failed.
  bool is_ready(int64_t table);
  // Wait until a table is ready; until so many of the pages that are free are; until nothing is under way. Rethrow what
  // has failed, from then on.
  void make_ready(int64_t table);
  void free_up(int64_t n_pages);
  void finish();

 private:
  struct Copy {
    bool reads = false;
    CachePage page;
    std::byte* image = nullptr;         // read into
    const std::byte* source = nullptr;  // written from
    size_t bytes = 0;
    base::PendingCopies* pending = nullptr;
    int mark = 0, place = 0;
    bool has_left = false;  // the pool
  };
  void add(Copy copy);
  template <class Condition>
  void wait_until(const Condition& holds);
  void collect();
  bool holds_ready(int64_t table) const noexcept;

  // Of the thread.
  void work();
  void begin();
  void start(Copy& copy);
  void end_oldest();
  void leave_pool(Copy& copy);
  void fail(Copy& copy);

  CacheTables& tables_;
  PageMover& mover_;
  int64_t n_open_ = 0;              // begun and not collected
  std::vector<CachePage> written_;  // of these: what is being written
  std::exception_ptr failed_;

  std::mutex mutex_;  // over what follows
  std::condition_variable asked_, left_;
  std::deque<Copy> waiting_;
  std::vector<Copy> over_;  // have left the pool
  std::exception_ptr failure_;
  bool ends_ = false;
  std::thread thread_;

  bool has_begun_ = false;  // of the thread
  std::vector<Copy> under_way_;
  std::vector<int> free_places_;
};

}  // namespace assay::pages
