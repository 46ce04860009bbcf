// Memory beside the pool for what preempted requests had in it: pages as they lay, so that a request that gets a place
// again goes on where it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

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
  int64_t bytes() const noexcept { return bytes_; }

 private:
  struct Kept {
    int64_t n_positions = 0;
    std::vector<size_t> ends;  // of each page's image, in images
    std::vector<std::byte> images;
    std::span<const std::byte> image(int64_t i_page) const noexcept {
      const auto i = static_cast<size_t>(i_page);
      const size_t begin = i == 0 ? 0 : ends[i - 1];
      return std::span(images).subspan(begin, ends[i] - begin);
    }
  };
  int64_t bytes_max_, bytes_ = 0;
  std::map<uint64_t, Kept> kept_;
};

}  // namespace assay::engine
