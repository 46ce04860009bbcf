// See device_state.h.
#include "backend/vulkan/runtime/device_state.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "backend/vulkan/linear/matrices.h"
#include "base/round_up.h"
#include "lower/lifetimes.h"
#include "ops/attention/attention.h"
#include "ops/linear/expert_linear.h"
#include "ops/plan/op_values.h"

namespace assay::backend::vulkan {
namespace {

constexpr int64_t kSegment = 256;                    // positions of attention that are summed together
constexpr int64_t kSegmentTokens = 4;                // up to so many, long texts are shared out by segments
constexpr int64_t kSegmentWords = int64_t{1} << 24;  // for which that is worth its memory, 64 MiB

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
                         const lower::Lowering& lowering_, std::span<const int32_t> step_of_group,
                         std::span<const uint8_t> is_native, const lower::SmallWeights& small)
    : plan(plan_), lowering(lowering_), options(options_), device(device_),
      cache(plan_.cache_layers, options_, device_), n_rotations_(plan_.ropes.size(), 0) {
  find_twins(is_native);
  place_values(step_of_group);
  place_segments();
  place_marks();
  place_batch();
  for (const ops::RopeSpec& spec : plan.ropes) {
    rope_tables.emplace_back(spec, options.n_ctx);
    ropes_.push_back(device.allocate(static_cast<size_t>(options.n_ctx * spec.dim) * sizeof(float),
                                     Device::Place::device, "the table of rotations"));
  }
  place_matrices(is_native);
  place_small(small);
}

// Twins that the device's products read, and how they see the rows.
void DeviceState::find_twins(std::span<const uint8_t> is_native) {
  for (const lower::Twin& twin : lowering.twins.list) twins_.push_back({0, twin.kind, 0});
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const int32_t twin = lowering.twins.read_by_op[i];
    if (twin == ops::kNone || is_native[i] == 0) continue;
    const auto* experts = plan.ops[i].as<ops::ExpertLinear>();
    int64_t& k = twins_[static_cast<size_t>(twin)].k;
    const int64_t wanted = experts != nullptr ? experts->d_in : width(lowering.twins.list[static_cast<size_t>(twin)].x);
    if (k != 0 && k != wanted) {
      throw Error(Errc::unsupported, plan.ops[i].name + ": reads rows of " + std::to_string(wanted) +
                                         " elements where another product reads rows of " + std::to_string(k) +
                                         " of the same value, which the Vulkan backend cannot; --backend cpu can");
    }
    k = wanted;
  }
}

size_t DeviceState::twin_bytes(const lower::Twin& twin, const TwinRows& rows) const {
  if (rows.k == 0) return 0;
  const int64_t planes = options.planes;
  const int64_t words = (planes * (rows.k / 4) + rows.k / rows.block() + planes * (rows.k / 16) + 3) / 4 * 4;
  return static_cast<size_t>(rows_max(twin.x) * (width(twin.x) / rows.k) * words) * sizeof(uint32_t);
}

// Each value has its memory from the step that writes it to the last that reads it, and each twin.
void DeviceState::place_values(std::span<const int32_t> step_of_group) {
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const auto id = static_cast<ops::ValueId>(i);
    if (width(id) > 0 && rows_max(id) > INT32_MAX / width(id)) {
      throw Error(Errc::unsupported, plan.values[i].name + ": " + std::to_string(rows_max(id)) + " rows of " +
                                         std::to_string(width(id)) +
                                         " are more than the Vulkan backend can count; use smaller chunks (-ub)");
    }
  }
  const lower::Steps steps = lower::find_steps(plan, lowering, step_of_group);
  const lower::Lifetimes lifetimes = lower::find_lifetimes(plan, lowering.links, lowering.twins, steps);
  std::vector<size_t> bytes_of_twins;
  for (size_t i = 0; i < twins_.size(); ++i) bytes_of_twins.push_back(twin_bytes(lowering.twins.list[i], twins_[i]));
  lower::Placement placement = lower::place_values(plan, bytes_of_twins, lifetimes, options, FreeList::kAlignment);
  arena_ = device.allocate(placement.bytes, Device::Place::device,
                           "the activations of " + std::to_string(options.n_batch_max) + " tokens");
  offsets_ = std::move(placement.values);
  for (size_t i = 0; i < twins_.size(); ++i) twins_[i].address = arena_.address() + placement.twins[i];
}

void DeviceState::place_segments() {
  int64_t words = 0;  // of a segment of all heads
  for (const ops::Op& op : plan.ops) {
    const auto* attention = op.as<ops::Attention>();
    if (attention == nullptr) continue;
    words = std::max(words, attention->n_heads * (2 + cache.layer(attention->layer).v_dim()));
  }
  const int64_t n_tokens = std::min(kSegmentTokens, options.n_batch_max), n = (options.n_ctx + kSegment - 1) / kSegment;
  if (words == 0 || n < 2) return;
  n_segments_max_ = std::min(n, kSegmentWords / (words * n_tokens));
  if (n_segments_max_ < 2) return;
  segments_ = device.allocate(static_cast<size_t>(n_segments_max_ * n_tokens * words) * sizeof(float),
                              Device::Place::device, "segments of attention");
}

// A word for each tile: of attention/attention_tile.comp that has at least as many queries.
void DeviceState::place_marks() {
  int64_t n_heads = 0;
  for (const ops::Op& op : plan.ops) {
    if (const auto* attention = op.as<ops::Attention>()) n_heads = std::max(n_heads, attention->n_heads);
  }
  if (n_heads == 0 || !device.has_attention_tiles()) return;
  const int64_t n_tiles = n_heads * (options.n_batch_max / kTileQueriesMin + 1);
  marks_ =
      device.allocate(static_cast<size_t>(n_tiles) * sizeof(uint32_t), Device::Place::device, "marks of attention");
}

void DeviceState::place_batch() {
  const auto bytes = static_cast<size_t>(4 * options.n_batch_max + options.n_sequences) * sizeof(int32_t);
  batch_ =
      device.allocate(bytes, device.facts().shares_memory ? Device::Place::host : Device::Place::device, "a batch");
  if (!device.facts().shares_memory) batch_on_host_ = device.allocate(bytes, Device::Place::host, "a batch");
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
    const ops::Weight& weight = plan.weights[static_cast<size_t>(ids.front())];
    const Buffer& to = weights_.emplace_back(
        device.allocate(static_cast<size_t>(device_bytes(weight.view)), Device::Place::device, weight.name));
    write_matrix(weight.view, to);
    for (const ops::WeightId id : ids) matrices_[static_cast<size_t>(id)] = to.address();
    done += static_cast<int64_t>(extent.second);
    if (options.on_load) options.on_load(done, total);
  }
}

void DeviceState::write_matrix(const tensor::TensorView& matrix, const Buffer& to) {
  constexpr int64_t kTogether = int64_t{8} << 20;
  const int64_t stride = device_row_bytes(matrix), end = device_bytes(matrix) / std::max<int64_t>(1, stride);
  std::vector<std::byte> rows(static_cast<size_t>(std::max(stride, kTogether / std::max<int64_t>(1, stride) * stride)));
  for (int64_t row = 0; row < end;) {
    const int64_t n = lay_out_rows(matrix, row, rows);
    device.write(to, static_cast<size_t>(row * stride), std::span(rows).first(static_cast<size_t>(n * stride)));
    row += n;
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
  const Buffer& on_host = batch_on_host_.size() > 0 ? batch_on_host_ : batch_;
  const auto part = [&](int64_t i) { return on_host.as<int32_t>() + i * options.n_batch_max; };
  std::copy(batch.tokens.begin(), batch.tokens.end(), part(0));
  std::copy(batch.positions.begin(), batch.positions.end(), part(1));
  if (batch.sequences.empty()) std::fill_n(part(2), n_tokens_, 0);
  std::copy(batch.sequences.begin(), batch.sequences.end(), part(2));
  for (size_t i = 0; i < shape.selected.size(); ++i) part(3)[i] = static_cast<int32_t>(shape.selected[i]);
  for (size_t i = 0; i < shape.n_positions.size(); ++i) part(4)[i] = static_cast<int32_t>(shape.n_positions[i]);
  constexpr int64_t kRotationsAhead = 64;  // at a time, so that not every token sends some
  const int64_t longest = *std::max_element(shape.n_positions.begin(), shape.n_positions.end());
  n_segments_ = 0;
  if (n_tokens_ <= kSegmentTokens && longest > kSegment) {
    for (n_segments_ = 2; n_segments_ * kSegment < longest;) n_segments_ *= 2;  // few different recordings
    const int64_t n_all = (options.n_ctx + kSegment - 1) / kSegment;
    n_segments_ = std::min(n_segments_, n_all) <= n_segments_max_ ? std::min(n_segments_, n_all) : 0;
  }
  for (size_t i = 0; i < ropes_.size(); ++i) {
    if (longest <= n_rotations_[i]) continue;
    const int64_t end = std::min(options.n_ctx, base::round_up(longest, kRotationsAhead)), dim = plan.ropes[i].dim;
    rope_tables[i].fill_to(end);
    const std::span<const float> rows(rope_tables[i].cos(n_rotations_[i]),
                                      static_cast<size_t>((end - n_rotations_[i]) * dim));
    device.write(ropes_[i], static_cast<size_t>(n_rotations_[i] * dim) * sizeof(float), std::as_bytes(rows));
    n_rotations_[i] = end;
  }
}

void DeviceState::record_begin() {
  if (batch_on_host_.size() > 0) device.copy(batch_on_host_, 0, batch_, 0, batch_.size());
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
  size_t bytes = arena_.size() + batch_.size() + batch_on_host_.size() + segments_.size() + marks_.size();
  for (const Buffer& rope : ropes_) bytes += rope.size();
  return bytes;
}

}  // namespace assay::backend::vulkan
