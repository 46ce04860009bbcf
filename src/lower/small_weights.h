// Norm weights and biases as aligned f32: where the file has them otherwise, a copy.
#pragma once

#include <cstddef>
#include <vector>

#include "base/aligned_buffer.h"
#include "ops/plan/plan.h"

namespace assay::lower {

class SmallWeights {
 public:
  explicit SmallWeights(const ops::Plan& plan);  // the file's map must outlive it

  const std::vector<const float*>& all() const noexcept {
    return places_;
  }  // per weight of the plan; null: no such one
  size_t bytes() const noexcept { return copies_.size(); }

 private:
  std::vector<const float*> places_;
  base::AlignedBuffer copies_;
};

}  // namespace assay::lower
