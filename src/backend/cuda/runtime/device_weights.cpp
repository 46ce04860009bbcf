// See device_weights.h.
#include "backend/cuda/runtime/device_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "backend/cuda/rows/row_kernels.h"
#include "backend/cuda/runtime/upload.h"
#include "base/round_up.h"
#include "lower/small_weights.h"
#include "ops/embed/embed.h"
#include "ops/embed/embed_position.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/plan/plan_check.h"

namespace assay::backend::cuda {
namespace {

constexpr size_t kAlignment = 256;
size_t rounded(size_t n_bytes) noexcept { return base::round_up(n_bytes, kAlignment); }

// Which weights are read as matrices: tables and the w of products. What a borrowed op reads stays on the host.
std::vector<ops::WeightId> matrices_of(const ops::Plan& plan, std::span<const int32_t> column_linears) {
  std::vector<ops::WeightId> ids;
  for (const int32_t op : column_linears) ids.push_back(plan.ops[static_cast<size_t>(op)].get<ops::Linear>().columns);
  for (const ops::Op& op : plan.ops) {
    if (const auto* embed = op.as<ops::Embed>()) ids.push_back(embed->table);
    if (const auto* positions = op.as<ops::EmbedPosition>()) ids.push_back(positions->table);
    if (const auto* linear = op.as<ops::Linear>()) ids.push_back(linear->w);
    if (const auto* experts = op.as<ops::ExpertLinear>()) ids.push_back(experts->w);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

using Extent =
    std::pair<const std::byte*, size_t>;  // a shard of a model may have the first rows of a matrix beside all of it
Extent extent_of(const tensor::TensorView& view) noexcept { return {view.data.data(), view.data.size()}; }

size_t file_bytes(const tensor::TensorView& view) { return static_cast<size_t>(view.shape.rows() * view.row_bytes()); }
size_t matrix_bytes(const tensor::TensorView& view, bool whole_blocks) {
  const PartBytes parts = part_bytes(view.dtype, whole_blocks);
  if (parts.n == 1) return rounded(file_bytes(view));
  const auto n_blocks = file_bytes(view) / static_cast<size_t>(tensor::traits(view.dtype).block_bytes);
  size_t bytes = 0;
  for (int p = 0; p < parts.n; ++p) bytes += rounded(n_blocks * static_cast<size_t>(parts.bytes[p]));
  return bytes;
}

// Columns of a matrix, its rows one after the other in `memory`.
std::span<const std::byte> joined_rows(const ops::Weight& weight, std::vector<std::byte>& memory) {
  const auto n = static_cast<size_t>(weight.view.row_bytes()), n_rows = static_cast<size_t>(weight.view.shape.rows());
  memory.resize(n * n_rows);
  for (size_t i = 0; i < n_rows; ++i)
    std::memcpy(memory.data() + i * n, weight.view.data.data() + i * static_cast<size_t>(weight.stride), n);
  return memory;
}

}  // namespace

DeviceWeights::DeviceWeights(const ops::Plan& plan, const ops::ExecutorOptions& options,
                             std::span<const int32_t> column_linears, cudaStream_t stream)
    : matrices_(plan.weights.size()), small_(plan.weights.size(), nullptr) {
  const bool whole_blocks = options.weights_as_f32;
  const std::vector<ops::WeightId> small = ops::small_weights_of(plan), matrices = matrices_of(plan, column_linears);
  const auto view_of = [&](ops::WeightId id) -> const tensor::TensorView& {
    return plan.weights[static_cast<size_t>(id)].view;
  };
  size_t bytes = 0, staging_bytes = 0, sent_bytes = 0;
  std::map<Extent, size_t> places;  // a head tied to the table of tokens is copied once
  for (const ops::WeightId id : matrices) {
    const tensor::TensorView& view = view_of(id);
    if (!places.emplace(extent_of(view), bytes).second) continue;
    bytes += matrix_bytes(view, whole_blocks);
    sent_bytes += file_bytes(view);
    if (part_bytes(view.dtype, whole_blocks).n > 1) staging_bytes = std::max(staging_bytes, file_bytes(view));
  }
  const size_t small_begin = bytes;
  for (const ops::WeightId id : small) {
    const size_t n = static_cast<size_t>(view_of(id).shape.elements()) * sizeof(float);
    bytes += rounded(n);
    sent_bytes += n;
  }
  memory_ = DeviceBuffer(bytes, "the copy of the weights");
  // Kernels load the last scale of a part in a word with its neighbour, which may be none; they use none of it, but
  // find nothing unwritten.
  check(cudaMemsetAsync(memory_.data(), 0, memory_.size(), stream), "clearing memory for weights");
  const DeviceBuffer staging(staging_bytes, "the weights on their way");

  Upload::OnSent on_sent;
  if (options.on_load) on_sent = [&](int64_t n_bytes) { options.on_load(n_bytes, static_cast<int64_t>(sent_bytes)); };
  Upload upload(matrices.size() + small.size(), stream, on_sent);
  std::map<Extent, const Matrix*> copied;
  std::vector<std::byte> columns;
  for (const ops::WeightId id : matrices) {
    const ops::Weight& weight = plan.weights[static_cast<size_t>(id)];
    const tensor::TensorView& view = weight.view;
    Matrix& m = matrices_[static_cast<size_t>(id)];
    if (const auto known = copied.find(extent_of(view)); known != copied.end()) {
      m = *known->second;
      continue;
    }
    m.dtype = view.dtype;
    m.rows = view.shape.rows();
    m.cols = view.shape.cols();
    if (weight.stride > 0) {
      const int64_t n_shards = weight.stride / view.row_bytes();
      m.rows /= n_shards;
      m.cols *= n_shards;
    }
    const PartBytes parts = part_bytes(view.dtype, whole_blocks);
    const auto n_blocks = file_bytes(view) / static_cast<size_t>(tensor::traits(view.dtype).block_bytes);
    std::byte* place = memory_.data() + places.at(extent_of(view));
    m.parts.n = parts.n;
    for (int p = 0; p < parts.n; ++p) {
      m.parts.bytes[p] = parts.bytes[p];
      m.parts.base[p] = reinterpret_cast<const uint8_t*>(place);
      place += rounded(n_blocks * static_cast<size_t>(parts.bytes[p]));
    }
    std::byte* target =
        parts.n == 1 ? const_cast<std::byte*>(reinterpret_cast<const std::byte*>(m.parts.base[0])) : staging.data();
    upload.send(target, weight.stride > 0 ? joined_rows(weight, columns) : view.data, weight.name);
    if (parts.n > 1) cut_blocks(staging.as<const uint8_t>(), static_cast<int64_t>(n_blocks), m.parts, stream);
    copied.emplace(extent_of(view), &m);
  }
  std::byte* place = memory_.data() + small_begin;
  const lower::SmallWeights floats(plan);
  for (const ops::WeightId id : small) {
    const std::span values(floats.all()[static_cast<size_t>(id)], static_cast<size_t>(view_of(id).shape.elements()));
    upload.send(place, std::as_bytes(values), plan.weights[static_cast<size_t>(id)].name);
    small_[static_cast<size_t>(id)] = reinterpret_cast<const float*>(place);
    place += rounded(values.size_bytes());
  }
  upload.finish();
}

}  // namespace assay::backend::cuda
