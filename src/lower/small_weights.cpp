// See small_weights.h.
#include "lower/small_weights.h"

#include <cstdint>

#include "base/index.h"
#include "base/round_up.h"
#include "ops/plan/plan_check.h"
#include "quant/format.h"

namespace assay::lower {
namespace {

constexpr size_t kCopyAlignment = 64;

bool is_usable(const tensor::TensorView& view) noexcept {
  return view.dtype == tensor::DType::F32 && reinterpret_cast<uintptr_t>(view.data.data()) % alignof(float) == 0;
}

size_t copy_bytes(const tensor::TensorView& view) noexcept {
  return base::round_up(at(view.shape.elements()) * sizeof(float), kCopyAlignment);
}

}  // namespace

SmallWeights::SmallWeights(const ops::Plan& plan) : places_(plan.weights.size(), nullptr) {
  const std::vector<ops::WeightId> small = ops::small_weights_of(plan);
  size_t bytes = 0;
  for (const ops::WeightId id : small) {
    const tensor::TensorView& view = plan.weights[at(id)].view;
    if (!is_usable(view)) bytes += copy_bytes(view);
  }
  copies_ = base::AlignedBuffer(bytes, "norm weights and biases");
  std::byte* copy = copies_.data();
  for (const ops::WeightId id : small) {
    const tensor::TensorView& view = plan.weights[at(id)].view;
    if (places_[at(id)] != nullptr) continue;
    if (is_usable(view)) {
      places_[at(id)] = reinterpret_cast<const float*>(view.data.data());
      continue;
    }
    auto* floats = reinterpret_cast<float*>(copy);
    quant::decode_row(*quant::find_format(view.dtype), view.data.data(), view.shape.elements(), floats);
    places_[at(id)] = floats;
    copy += copy_bytes(view);
  }
}

}  // namespace assay::lower
