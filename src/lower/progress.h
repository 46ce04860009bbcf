// Which values and layers of the cache are there when ops are put in an order, and from which step on. A step is what
// a device counts by: an op, a kernel, the work between two barriers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.h"
#include "lower/links.h"
#include "ops/plan/plan.h"

namespace assay::lower {

class Progress {
 public:
  // Both must outlive it. The input of a part is there.
  Progress(const ops::Plan& plan, const Links& links);

  // Made in a step before that one.
  bool has_value(ops::ValueId value, int32_t before) const noexcept { return is_made(values_, value, before); }
  // Everything that the op reads, its layer of the cache too.
  bool has_inputs(int32_t op, int32_t before) const noexcept;
  bool has_layer_of(int32_t op, int32_t before) const noexcept {
    return links_.layer_read(op) == ops::kNone || is_made(layers_, links_.layer_read(op), before);
  }
  bool is_done(int32_t op) const noexcept { return done_[at(op)] != 0; }
  bool is_all_done() const noexcept { return n_done_ == done_.size(); }
  size_t n_done() const noexcept { return n_done_; }

  void take(int32_t op, int32_t step) noexcept;

  // Error(unsupported) for the first op that is not done.
  [[noreturn]] void refuse() const;

 private:
  static bool is_made(const std::vector<int32_t>& steps, int32_t id, int32_t before) noexcept {
    return steps[at(id)] < before;
  }

  const ops::Plan& plan_;
  const Links& links_;
  std::vector<int32_t> values_, layers_;  // the steps that make them
  std::vector<uint8_t> done_;             // per op
  size_t n_done_ = 0;
};

}  // namespace assay::lower
