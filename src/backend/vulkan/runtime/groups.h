// Fusion groups (lower/fusion.h) on the device: those that are one kernel for several ops, twins, and products that are
// recorded side by side. Ops alone are the table's (kernels.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/vulkan/runtime/device_state.h"
#include "backend/vulkan/runtime/kernels.h"
#include "lower/device.h"
#include "lower/fusion.h"

namespace assay::backend::vulkan {

// What one kernel takes here. borrows_all: nothing, for tests.
lower::DeviceLimits limits_for(const ops::Plan& plan, const ops::ExecutorOptions& options, const Facts& device,
                               bool borrows_all);

// Whether the group has a kernel of its own, whose name this is; empty: its ops run by the table, or are borrowed. A
// gate whose integers nobody reads on the device has none.
std::string_view kernel_of(const DeviceState& state, const lower::FusionGroup& group) noexcept;
// Records such a group. Nothing where the run has no rows of it.
void record_group(DeviceState& state, const lower::FusionGroup& group);
// Of one token and no segments: a group of heads together with the attention over what it stores (attention.comp).
inline constexpr std::string_view kHeadsAndAttention = "attention, heads";
bool takes_attention(const ops::Plan& plan, const lower::FusionGroup& heads, int32_t attention);
void record_heads_and_attention(DeviceState& state, const lower::FusionGroup& heads, int32_t attention);

}  // namespace assay::backend::vulkan
