// What the device holds of each sequence: its positions of the cache, in pages, and its states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/cuda/attention/page_images.h"
#include "backend/cuda/runtime/device_state.h"
#include "ops/plan/executor.h"

namespace assay::backend::cuda {

class Sequences {
 public:
  explicit Sequences(DeviceState& state);

  std::span<const int64_t> n_positions() const noexcept { return n_positions_; }
  int64_t n_positions(int sequence) const;
  void truncate(int sequence, int64_t n_positions);
  // The stream must have ended.
  void visit(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const;

  // Of the batch whose shape the state has: takes what it needs. Error(out_of_memory), and nothing has happened, where
  // that is more pages than there are. is_next: begin_next() has taken the pages.
  void begin(bool is_next);
  void end();                 // they hold the batch's tokens
  void take_back() noexcept;  // they hold what they held before it

  // Pages for the run behind the batch's, of a token more of each of its sequences. False: not now.
  bool begin_next();

  // As ops::Executor has them. Of those that change something no run may be under way that was begun so.
  ops::CachePages pages() const noexcept;
  int64_t n_pages_needed(int sequence, int64_t n_more) const;
  bool fork(int from, int64_t n_positions, int to);
  int64_t n_usable(int sequence, int64_t n) const;
  void forget(int sequence, int64_t begin, int64_t end);
  bool holds_window(int sequence, int64_t i_page) const;
  bool begin_read_page(int sequence, int64_t i_page, std::span<std::byte> image, base::PendingCopies& copies) const;
  bool begin_append_page(int sequence, int64_t n_more, std::span<const std::byte> image, base::PendingCopies& copies);
  bool is_ready(int sequence) const;
  void forget_next() noexcept;  // its pages are free again

 private:
  const assay::pages::CacheTables& tables() const noexcept { return state_.cache.tables(); }
  assay::pages::PageCopies& copies() const noexcept { return images_.copies(); }
  void make_ready(const std::vector<int64_t>& after);
  bool reserves(int64_t n_pages);
  int64_t truncate_states(int sequence, int64_t n_positions);  // how many positions they allow

  DeviceState& state_;
  std::vector<int64_t> n_positions_;  // per sequence
  std::vector<int> ahead_;            // sequences whose tables are a position ahead of these
  mutable PageImages images_;
};

}  // namespace assay::backend::cuda
