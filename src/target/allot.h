// The smallest sum of costs for a size: one candidate for each tensor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay::target {

struct Candidate {
  uint64_t bytes = 0;
  double cost = 0;
};

// The sum of the smallest candidates.
uint64_t least_bytes(std::span<const std::vector<Candidate>> tensors);

// For each tensor the index of its candidate. Only those on the lower convex hull of (bytes, cost) are taken: from the
// smallest ones on, always the step that saves most cost for a byte and still fits. So the answer is the best for the
// size that it has, and short of bytes_max by less than the largest step. bytes_max >= least_bytes(tensors).
std::vector<size_t> allot(std::span<const std::vector<Candidate>> tensors, uint64_t bytes_max);

}  // namespace assay::target
