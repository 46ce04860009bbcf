// See placement.h.
#include "lower/placement.h"

#include <algorithm>

#include "base/index.h"
#include "lower/buffer_plan.h"

namespace assay::lower {
namespace {

using ops::kNone;

struct Wanted {
  BufferNeed need;  // in_place_of: a value
  int32_t value = kNone, twin = kNone;
};

}  // namespace

int64_t rows_max(const ops::Plan& plan, ops::ValueId value, const ops::ExecutorOptions& options) noexcept {
  return plan.values[at(value)].domain.n_rows(options.n_batch_max, options.n_outputs_max);
}

Placement place_values(const ops::Plan& plan, const Twins& twins, const Lifetimes& lifetimes,
                       const ops::ExecutorOptions& options, size_t alignment, const Views* views) {
  std::vector<size_t> twin_bytes;
  for (const Twin& twin : twins.list) {
    const int64_t width = plan.values[at(twin.x)].width;
    twin_bytes.push_back(quant::activations_bytes(twin.kind, options.planes, rows_max(plan, twin.x, options), width));
  }
  return place_values(plan, twin_bytes, lifetimes, options, alignment, views);
}

Placement place_values(const ops::Plan& plan, std::span<const size_t> twin_bytes, const Lifetimes& lifetimes,
                       const ops::ExecutorOptions& options, size_t alignment, const Views* views) {
  Placement placement;
  placement.values.resize(plan.values.size());
  placement.twins.resize(twin_bytes.size());
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < plan.values.size(); ++i) {
    if (views != nullptr && views->is_view(static_cast<ops::ValueId>(i))) continue;
    const Lifetime& life = lifetimes.values[i];
    const int64_t n_floats = rows_max(plan, static_cast<ops::ValueId>(i), options) * plan.values[i].width;
    const BufferNeed need{static_cast<size_t>(n_floats) * sizeof(float), life.first_step, life.last_step,
                          life.in_place_of};
    wanted.push_back({need, static_cast<int32_t>(i), kNone});
  }
  for (size_t i = 0; i < twin_bytes.size(); ++i) {
    const Lifetime& life = lifetimes.twins[i];
    wanted.push_back({{twin_bytes[i], life.first_step, life.last_step, kNone}, kNone, static_cast<int32_t>(i)});
  }
  // In order of time; a value comes before the one that takes over its memory, because it is written in an earlier
  // step.
  std::ranges::stable_sort(wanted, {}, [](const Wanted& w) { return w.need.first_step; });
  std::vector<int32_t> need_of(plan.values.size(), kNone);
  std::vector<BufferNeed> needs;
  for (const Wanted& w : wanted) {
    BufferNeed need = w.need;
    if (need.in_place_of != kNone) need.in_place_of = need_of[at(need.in_place_of)];
    if (w.value != kNone) need_of[at(w.value)] = static_cast<int32_t>(needs.size());
    needs.push_back(need);
  }
  const BufferPlan placed = place_buffers(needs, alignment);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Wanted& w = wanted[i];
    size_t& offset = w.value != kNone ? placement.values[at(w.value)] : placement.twins[at(w.twin)];
    offset = placed.offsets[i];
  }
  for (size_t i = 0; views != nullptr && i < plan.values.size(); ++i) {
    const View& view = views->of[i];
    if (view.base == kNone) continue;
    placement.values[i] = placement.values[at(view.base)] + static_cast<size_t>(view.first) * sizeof(float);
  }
  placement.bytes = placed.bytes;
  return placement;
}

Places places_in(std::byte* arena, const Placement& placement, const ops::Plan& plan, const Twins& twins,
                 const ops::ExecutorOptions& options) {
  Places places;
  for (const size_t offset : placement.values) places.values.push_back(reinterpret_cast<float*>(arena + offset));
  for (size_t i = 0; i < twins.list.size(); ++i) {
    const Twin& twin = twins.list[i];
    const int64_t width = plan.values[at(twin.x)].width;
    places.twins.push_back(
        quant::carve(twin.kind, options.planes, rows_max(plan, twin.x, options), width, arena + placement.twins[i]));
  }
  return places;
}

}  // namespace assay::lower
