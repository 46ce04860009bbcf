// Cosines and sines of a RopeSpec for the positions in use (contract: ops/attention/rope.h). Filled as positions
// appear, never anew.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "ops/plan/plan.h"

namespace assay::ops {

class RopeTable {
 public:
  RopeTable(const RopeSpec& spec, int64_t n_ctx);  // spec must outlive the table

  void fill_to(int64_t n_positions);  // makes what is missing
  const float* cos(int64_t position) const noexcept { return row(position); }
  const float* sin(int64_t position) const noexcept { return row(position) + spec_->dim / 2; }
  const RopeSpec& spec() const noexcept { return *spec_; }
  size_t bytes() const noexcept { return memory_.size(); }

 private:
  const float* row(int64_t position) const noexcept {
    return reinterpret_cast<const float*>(memory_.data()) + position * spec_->dim;
  }
  const RopeSpec* spec_;
  int64_t n_filled_ = 0;
  base::AlignedBuffer memory_;
};

}  // namespace assay::ops
