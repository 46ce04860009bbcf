// The backend's table of kernels: which ops the device computes itself, for how many tokens at a time, and how each is
// launched. It starts empty, behind it stand the references on the host (borrow.h); a row is chosen when a plan is
// lowered, and nothing chooses again while it runs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/vulkan/runtime/device_state.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "tensor/view.h"

namespace assay::backend::vulkan {

struct Kernel {
  std::string_view name;                   // of its shader, and what it is specialised for
  const void* op = nullptr;                // Record::type_of
  int64_t tokens_min = 1, tokens_max = 0;  // 0: any number
  // Formats, sizes and modes that it computes; all that its op may be where there is nothing to say.
  bool (*serves)(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op) = nullptr;
  // ops: places in the plan, of one op; of a kernel for linears up to kProductsMax whose matrices have one format and
  // whose x is one twin.
  void (*run)(DeviceState& state, std::span<const int32_t> ops) = nullptr;
  bool needs_matrices = false;  // Device::matrix_depth
  bool needs_tiles = false;     // Device::has_attention_tiles
};
inline constexpr size_t kProductsMax = 3;
std::span<const Kernel> kernels() noexcept;

// Who shares a row of weights, where few tokens are multiplied: so many invocations that all its loads are on their way
// at once; and how many rows they have, more of large matrices.
struct Team {
  int64_t lanes = 32, rows = 2;
};
Team team_for(const tensor::TensorView& w, int64_t n_tokens) noexcept;

// What of a device the choice depends on.
struct Offer {
  uint64_t matrix_bytes_max = UINT64_MAX;  // in one piece; an op of a larger matrix is borrowed
  bool has_matrices = false, has_tiles = false;
};
// The rows that serve the op, ascending by tokens; none: it is borrowed. An op of no row has no other number of tokens
// either.
std::vector<const Kernel*> kernels_for(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op,
                                       const Offer& offer = {});

}  // namespace assay::backend::vulkan
