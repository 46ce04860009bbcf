// Where the oracle keeps each value of a Plan while it is needed: values whose lives do not overlap share memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "ops/plan/plan.h"

namespace assay::backend::oracle {

class Slots {
 public:
  Slots(const ops::Plan& plan, int64_t n_tokens_max, int64_t n_outputs_max);

  double* data(ops::ValueId id) noexcept { return static_cast<double*>(static_cast<void*>(memory_[slot(id)].data())); }
  const double* data(ops::ValueId id) const noexcept {
    return static_cast<const double*>(static_cast<const void*>(memory_[slot(id)].data()));
  }
  size_t bytes() const noexcept;

 private:
  size_t slot(ops::ValueId id) const noexcept { return slot_of_[static_cast<size_t>(id)]; }
  std::vector<size_t> slot_of_;  // by value
  std::vector<base::AlignedBuffer> memory_;
};

}  // namespace assay::backend::oracle
