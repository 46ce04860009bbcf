// What an executor holds on the device, placed once: weights, cache, values, tables of rotations, scratch, and the
// batch at work.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/vulkan/attention/kv_cache.h"
#include "backend/vulkan/device/device.h"
#include "lower/lowering.h"
#include "lower/placement.h"
#include "lower/small_weights.h"
#include "ops/attention/rope_table.h"
#include "ops/plan/batch_shape.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "quant/format.h"

namespace assay::backend::vulkan {

// Rows of a value as integers (linear/twin.glsl). k: elements of a row there; of what heads multiply each by a matrix
// of its own, a row of the value is several.
struct TwinRows {
  VkDeviceAddress address = 0;
  quant::Activation kind = quant::Activation::a256;
  int64_t k = 0;
  uint32_t block() const noexcept { return kind == quant::Activation::a256 ? 256 : 32; }
};

class DeviceState {
 public:
  // step_of_group: per group of the lowering, the step in which its values live. is_native: per op, whether it runs on
  // the device: weights of others are not copied to it. All that is referred to must outlive the state.
  DeviceState(const ops::Plan& plan, const ops::ExecutorOptions& options, Device& device,
              const lower::Lowering& lowering, std::span<const int32_t> step_of_group,
              std::span<const uint8_t> is_native, const lower::SmallWeights& small);

  // A batch, which outlives its run: sets what it is made of, for the first step to take it over.
  void begin(const ops::Batch& batch, const ops::BatchShape& shape);
  void record_begin();  // that step

  const ops::Plan& plan;
  const lower::Lowering& lowering;
  const ops::ExecutorOptions options;
  Device& device;
  KvCache cache;
  std::vector<ops::RopeTable> rope_tables;

  int64_t width(ops::ValueId id) const { return plan.values[static_cast<size_t>(id)].width; }
  int64_t n_rows(ops::ValueId id) const {
    return plan.values[static_cast<size_t>(id)].domain.n_rows(n_tokens_, n_outputs_);
  }
  int64_t n_tokens() const noexcept { return n_tokens_; }
  VkDeviceAddress value(ops::ValueId id) const { return arena_.address() + offsets_[static_cast<size_t>(id)]; }
  VkDeviceAddress matrix(ops::WeightId id) const { return matrices_[static_cast<size_t>(id)]; }
  VkDeviceAddress small(ops::WeightId id) const { return id == ops::kNone ? 0 : small_[static_cast<size_t>(id)]; }
  VkDeviceAddress rope(ops::RopeId id) const { return ropes_[static_cast<size_t>(id)].address(); }
  VkDeviceAddress tokens() const noexcept { return batch_part(0); }
  VkDeviceAddress positions() const noexcept { return batch_part(1); }
  VkDeviceAddress sequences() const noexcept { return batch_part(2); }
  VkDeviceAddress selected() const noexcept { return batch_part(3); }
  VkDeviceAddress n_positions() const noexcept { return batch_part(4); }  // of each sequence, once the batch has run
  const TwinRows& twin(int32_t i) const { return twins_[static_cast<size_t>(i)]; }     // of the lowering's
  bool is_twin_read(int32_t i) const { return twins_[static_cast<size_t>(i)].k > 0; }  // by the device
  // Where heads of few tokens keep the segments of their attention; how many for each head, 0: one workgroup has them
  // all.
  VkDeviceAddress segments() const noexcept { return segments_.address(); }
  VkDeviceAddress marks() const noexcept { return marks_.address(); }  // of the tiles of attention
  int64_t n_segments() const noexcept { return n_segments_; }

  void read_value(ops::ValueId id, std::span<float> rows);
  void write_value(ops::ValueId id, std::span<const float> rows);
  void copy_value(ops::ValueId id, const Buffer& to);  // all rows
  size_t arena_bytes() const noexcept;
  int64_t rows_max(ops::ValueId id) const { return lower::rows_max(plan, id, options); }

 private:
  VkDeviceAddress batch_part(int64_t i) const noexcept {
    return batch_.address() + static_cast<size_t>(i * options.n_batch_max) * sizeof(int32_t);
  }
  void find_twins(std::span<const uint8_t> is_native);
  void place_values(std::span<const int32_t> step_of_group);
  void place_segments();
  void place_marks();
  void place_matrices(std::span<const uint8_t> is_native);
  void place_small(const lower::SmallWeights& small);
  void place_batch();
  size_t twin_bytes(const lower::Twin& twin, const TwinRows& rows) const;
  void write_matrix(const tensor::TensorView& matrix, const Buffer& to);

  Buffer arena_, batch_, batch_on_host_, segments_,
      marks_;                                      // batch_on_host_: empty where the device reads what the host writes
  std::vector<size_t> offsets_;                    // of values in the arena
  std::vector<VkDeviceAddress> matrices_, small_;  // per weight, 0: not on the device
  std::vector<Buffer> weights_, ropes_;
  std::vector<int64_t> n_rotations_;  // positions whose rotations are on the device, per rope
  std::vector<TwinRows> twins_;
  int64_t n_tokens_ = 0, n_outputs_ = 0, n_segments_ = 0, n_segments_max_ = 0;
};

}  // namespace assay::backend::vulkan
