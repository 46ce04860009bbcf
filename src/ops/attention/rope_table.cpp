// Fills the table of angles as positions appear.
#include "ops/attention/rope_table.h"

#include "ops/attention/rope.h"

namespace assay::ops {

RopeTable::RopeTable(const RopeSpec& spec, int64_t n_ctx)
    : spec_(&spec), memory_(static_cast<uint64_t>(n_ctx * spec.dim) * sizeof(float), "the table of rotations") {}

void RopeTable::fill_to(int64_t n_positions) {
  for (; n_filled_ < n_positions; ++n_filled_) {
    float* place = reinterpret_cast<float*>(memory_.data()) + n_filled_ * spec_->dim;
    rope_angles(*spec_, n_filled_, place, place + spec_->dim / 2);
  }
}

}  // namespace assay::ops
