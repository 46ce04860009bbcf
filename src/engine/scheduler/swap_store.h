// Memory beside the pool for what preempted requests had in it: pages as they lay, so that a request that gets a place
// again goes on where it was. They leave and come back beside what runs, where the pool's device can do that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/pending_copies.h"
#include "engine/scheduler/sequence_tables.h"

namespace assay::engine {

class SwapStore {
 public:
  explicit SwapStore(int64_t bytes_max) : bytes_max_(bytes_max) {}

  // Keeps the sequence's pages under the request's number. False, and nothing is kept: there is no room.
  bool save(uint64_t id, const SequenceTables& tables, int sequence);
  // Appends what is kept of these tokens to the sequence, as far as there are pages, and keeps nothing of the request
  // any more. Returns the positions appended.
  int64_t restore(uint64_t id, SequenceTables& tables, int sequence, std::span<const TokenId> tokens);
  void drop(uint64_t id);
  // Whether what is kept of the request is still on its way here: restore() would wait.
  bool is_on_its_way(uint64_t id) const;
  int64_t bytes() const noexcept { return bytes_; }

 private:
  struct Kept {
    int64_t n_positions = 0;
    std::vector<size_t> ends;  // of each page's image, in images
    base::AlignedBuffer images;
    std::unique_ptr<base::PendingCopies> copies;  // whose end is waited for before the images go
    std::span<const std::byte> image(int64_t i_page) const noexcept {
      const auto i = static_cast<size_t>(i_page);
      const size_t begin = i == 0 ? 0 : ends[i - 1];
      return images.bytes().subspan(begin, ends[i] - begin);
    }
  };
  void forget_copied();

  int64_t bytes_max_, bytes_ = 0;
  std::map<uint64_t, Kept> kept_;
  std::multimap<uint64_t, Kept> leaving_;  // dropped while they were copied
};

}  // namespace assay::engine
