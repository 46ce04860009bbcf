// See device_state.h.
#include "backend/vulkan/runtime/device_state.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "lower/lifetimes.h"
#include "lower/links.h"
#include "lower/placement.h"
#include "lower/twins.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"

namespace assay::backend::vulkan {
namespace {

size_t whole_parts(size_t bytes) {
  return (bytes + FreeList::kAlignment - 1) / FreeList::kAlignment * FreeList::kAlignment;
}

using Extent = std::pair<const std::byte*, size_t>;  // of a matrix in its file

class MatricesOf final : public ops::FieldVisitor {
 public:
  std::vector<ops::WeightId> ids;
  void matrix(ops::WeightId& id) override {
    if (id != ops::kNone) ids.push_back(id);
  }
};

}  // namespace

DeviceState::DeviceState(const ops::Plan& plan_, const ops::ExecutorOptions& options_, Device& device_,
                         std::span<const uint8_t> is_native, const lower::SmallWeights& small)
    : plan(plan_),
      options(options_),
      device(device_),
      cache(plan_.cache_layers, options_, device_),
      n_rotations_(plan_.ropes.size(), 0) {
  place_values();
  place_quantised(is_native);
  const auto n_parts = static_cast<size_t>(4 * options.n_batch_max + options.n_sequences);
  batch_ = device.allocate(n_parts * sizeof(int32_t), Device::Place::host, "a batch");
  for (const ops::RopeSpec& spec : plan.ropes) {
    rope_tables.emplace_back(spec, options.n_ctx);
    ropes_.push_back(device.allocate(static_cast<size_t>(options.n_ctx * spec.dim) * sizeof(float),
                                     Device::Place::device, "the table of rotations"));
  }
  place_matrices(is_native);
  place_small(small);
}

// Each value has its memory from the op that writes it to the last that reads it: every op is a step of its own.
void DeviceState::place_values() {
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const auto id = static_cast<ops::ValueId>(i);
    if (width(id) > 0 && rows_max(id) > INT32_MAX / width(id)) {
      throw Error(Errc::unsupported, plan.values[i].name + ": " + std::to_string(rows_max(id)) + " rows of " +
                                         std::to_string(width(id)) +
                                         " are more than the Vulkan backend can count; use smaller chunks (-ub)");
    }
  }
  lower::Steps steps;
  steps.n = static_cast<int32_t>(plan.ops.size());
  steps.of_op.resize(plan.ops.size());
  std::iota(steps.of_op.begin(), steps.of_op.end(), 0);
  const lower::Twins none = {{},
                             std::vector<int32_t>(plan.ops.size(), ops::kNone)};  // a product makes its own integers
  const lower::Lifetimes lifetimes = lower::find_lifetimes(plan, lower::Links(plan), none, steps);
  lower::Placement placed = lower::place_values(plan, none, lifetimes, options, FreeList::kAlignment);
  offsets_ = std::move(placed.values);
  arena_ = device.allocate(placed.bytes, Device::Place::device,
                           "the activations of " + std::to_string(options.n_batch_max) + " tokens");
}

void DeviceState::place_quantised(std::span<const uint8_t> is_native) {
  size_t elements = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const auto* linear = plan.ops[i].as<ops::Linear>();
    const auto* experts = plan.ops[i].as<ops::ExpertLinear>();
    if ((linear == nullptr && experts == nullptr) || is_native[i] == 0 || options.weights_as_f32) continue;
    const ops::WeightId w = linear != nullptr ? linear->w : experts->w;
    const ops::ValueId x = linear != nullptr ? linear->x : experts->x;
    const quant::Format* format = quant::find_format(plan.weights[static_cast<size_t>(w)].view.dtype);
    if (format->activation != quant::Activation::f32)
      elements = std::max(elements, static_cast<size_t>(rows_max(x) * width(x)));
  }
  plane_bytes_ = whole_parts(elements);
  sums_bytes_ = whole_parts(elements / 16 * sizeof(int32_t));
  const size_t scales_bytes = whole_parts(elements / 32 * sizeof(float));
  if (elements > 0)
    quantised_ = device.allocate(static_cast<size_t>(options.planes) * (plane_bytes_ + sums_bytes_) + scales_bytes,
                                 Device::Place::device, "quantised activations");
}

// A head tied to the table of tokens is copied once.
void DeviceState::place_matrices(std::span<const uint8_t> is_native) {
  matrices_.resize(plan.weights.size());
  MatricesOf wanted;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (is_native[i] != 0) plan.ops[i].record.fields(wanted);
  }
  std::map<Extent, std::vector<ops::WeightId>> readers;
  for (const ops::WeightId id : wanted.ids) {
    const std::span<const std::byte> bytes = plan.weights[static_cast<size_t>(id)].view.data;
    readers[{bytes.data(), bytes.size()}].push_back(id);
  }
  int64_t done = 0, total = 0;
  for (const auto& [extent, ids] : readers) total += static_cast<int64_t>(extent.second);
  for (const auto& [extent, ids] : readers) {
    const std::string& name = plan.weights[static_cast<size_t>(ids.front())].name;
    const Buffer& to = weights_.emplace_back(device.allocate(extent.second, Device::Place::device, name));
    device.write(to, 0, {extent.first, extent.second});
    for (const ops::WeightId id : ids) matrices_[static_cast<size_t>(id)] = to.address();
    done += static_cast<int64_t>(extent.second);
    if (options.on_load) options.on_load(done, total);
  }
}

void DeviceState::place_small(const lower::SmallWeights& small) {
  small_.resize(plan.weights.size());
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    if (small.all()[i] == nullptr) continue;
    const ops::Weight& weight = plan.weights[i];
    const std::span<const float> values(small.all()[i], static_cast<size_t>(weight.view.shape.elements()));
    const Buffer& to = weights_.emplace_back(device.allocate(values.size_bytes(), Device::Place::device, weight.name));
    device.write(to, 0, std::as_bytes(values));
    small_[i] = to.address();
  }
}

void DeviceState::begin(const ops::Batch& batch, const ops::BatchShape& shape) {
  n_tokens_ = static_cast<int64_t>(batch.tokens.size());
  n_outputs_ = static_cast<int64_t>(shape.selected.size());
  quantised_value_ = ops::kNone;
  const auto part = [this](int64_t i) { return batch_.as<int32_t>() + i * options.n_batch_max; };
  std::copy(batch.tokens.begin(), batch.tokens.end(), part(0));
  std::copy(batch.positions.begin(), batch.positions.end(), part(1));
  if (batch.sequences.empty()) std::fill_n(part(2), n_tokens_, 0);
  std::copy(batch.sequences.begin(), batch.sequences.end(), part(2));
  for (size_t i = 0; i < shape.selected.size(); ++i) part(3)[i] = static_cast<int32_t>(shape.selected[i]);
  for (size_t i = 0; i < shape.n_positions.size(); ++i) part(4)[i] = static_cast<int32_t>(shape.n_positions[i]);
  constexpr int64_t kRotationsAhead = 64;  // at a time, so that not every token sends some
  const int64_t longest = *std::max_element(shape.n_positions.begin(), shape.n_positions.end());
  for (size_t i = 0; i < ropes_.size(); ++i) {
    if (longest <= n_rotations_[i]) continue;
    const int64_t end = std::min(options.n_ctx, (longest + kRotationsAhead - 1) / kRotationsAhead * kRotationsAhead),
                  dim = plan.ropes[i].dim;
    rope_tables[i].fill_to(end);
    const std::span<const float> rows(rope_tables[i].cos(n_rotations_[i]),
                                      static_cast<size_t>((end - n_rotations_[i]) * dim));
    device.write(ropes_[i], static_cast<size_t>(n_rotations_[i] * dim) * sizeof(float), std::as_bytes(rows));
    n_rotations_[i] = end;
  }
}

QuantisedRows DeviceState::quantised(ops::ValueId x, quant::Activation kind) {
  QuantisedRows rows;
  rows.q = quantised_.address();
  rows.sums_q = rows.q + plane_bytes_;
  rows.d = rows.sums_q + sums_bytes_;
  if (options.planes == 2) {
    rows.l = quantised_.address() + quantised_.size() - plane_bytes_ - sums_bytes_;
    rows.sums_l = rows.l + plane_bytes_;
  }
  if (quantised_value_ == x && quantised_kind_ == kind) return rows;
  quantised_value_ = x;
  quantised_kind_ = kind;
  struct Push {
    VkDeviceAddress x, q, l, d, sums_q, sums_l;
    uint32_t n_groups;
  };
  const int64_t n_groups = n_rows(x) * width(x) / 16;
  const Push push = {value(x), rows.q, rows.l, rows.d, rows.sums_q, rows.sums_l, static_cast<uint32_t>(n_groups)};
  device.dispatch("quantise", {kind == quant::Activation::a256 ? 16u : 2u, static_cast<uint32_t>(options.planes)}, push,
                  (n_groups + 15) / 16);
  return rows;
}

void DeviceState::read_value(ops::ValueId id, std::span<float> rows) {
  device.read(arena_, offsets_[static_cast<size_t>(id)], std::as_writable_bytes(rows));
}

void DeviceState::write_value(ops::ValueId id, std::span<const float> rows) {
  device.write(arena_, offsets_[static_cast<size_t>(id)], std::as_bytes(rows));
}

void DeviceState::copy_value(ops::ValueId id, const Buffer& to) {
  device.copy(arena_, offsets_[static_cast<size_t>(id)], to, 0,
              static_cast<size_t>(n_rows(id) * width(id)) * sizeof(float));
}

size_t DeviceState::arena_bytes() const noexcept {
  size_t bytes = arena_.size() + batch_.size() + quantised_.size();
  for (const Buffer& rope : ropes_) bytes += rope.size();
  return bytes;
}

}  // namespace assay::backend::vulkan
