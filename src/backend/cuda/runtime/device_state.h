// What an executor holds on the device, placed once: weights, cache, values, tables, scratch, and the batch at work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/experts/expert_groups.h"
#include "backend/cuda/kernels/kernel_plan.h"
#include "backend/cuda/linear/float_memory.h"
#include "backend/cuda/peers/peers.h"
#include "backend/cuda/rows/rank.h"
#include "backend/cuda/runtime/borrow.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/device_states.h"
#include "backend/cuda/runtime/device_weights.h"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/runtime/this_card.h"
#include "backend/cuda/schedule/schedule.h"
#include "backend/cuda/tiles/fast_blocks.h"
#include "ops/attention/rope_table.h"
#include "ops/embed/embed.h"
#include "ops/plan/batch_shape.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

struct DeviceState {
  DeviceState(const ops::Plan& plan, const ops::ExecutorOptions& options, const ShardPlace& place);

  // Copies what a batch is made of to the pinned buffer; send_batch() then queues the copy to the device.
  void take_batch(const ops::Batch& batch);
  void send_batch() const;
  // n_segments of a batch of as many tokens of the same sequences, each one position further on; 0 where that is beyond
  // the context.
  int64_t n_segments_after() const noexcept;
  // Whether logits of batches whose tokens are alone have memory of their own, where they are read while the next run
  // is under way: not of parts, nor of shards that do not reach one another.
  bool keeps_logits() const noexcept { return kept_logits_.size() > 0; }
  int64_t n_rows_kept() const noexcept { return std::min(options.n_outputs_max, alone_max()); }
  // Of an output in one of two places.
  const float* kept_logits(int which, int64_t i_output) const noexcept {
    return kept_logits_.as<const float>() + (which * n_rows_kept() + i_output) * plan.output_width();
  }
  void set_round(uint32_t round) { *batch_host_.as<uint32_t>() = round; }  // of the shards, before send_batch
  void fill_rope_tables();  // up to the positions of the batch and one further

  float* value(ops::ValueId id) const noexcept {
    const ops::ValueId from =
        n_tokens == 1 ? schedule.selected_from[static_cast<size_t>(id)] : ops::kNone;  // of one token the row itself
    return place_of(from == ops::kNone ? id : from);
  }
  int64_t width(ops::ValueId id) const noexcept { return plan.values[static_cast<size_t>(id)].width; }
  int64_t n_rows(ops::ValueId id) const noexcept {
    const auto n_outputs = static_cast<int64_t>(shape.selected.size());
    return plan.values[static_cast<size_t>(id)].domain.n_rows(n_tokens, n_outputs);
  }
  // Queue copies between a value's rows, or a row that lies elsewhere, and the host; nothing where the value is kNone.
  void send_rows(const PinnedBuffer& from, ops::ValueId to) const;  // all of the batch's
  void read_rows(ops::ValueId from, int64_t begin, int64_t n, const PinnedBuffer& to) const;
  void read_row(const float* from, ops::ValueId of, int64_t i, const PinnedBuffer& to) const;
  // Whether a matrix is multiplied as floats that must first be decoded.
  bool decodes(const Matrix& w) const noexcept;
  // Whether mode fast multiplies it on the float tensor cores.
  bool is_fast(const Matrix& w) const noexcept { return is_multiplied_fast(options, w.dtype, w.cols); }
  size_t arena_bytes() const noexcept;

  const uint32_t* round() const noexcept { return batch_device_.as<const uint32_t>(); }
  const int32_t* tokens() const noexcept { return batch_part(0); }
  const int32_t* positions() const noexcept { return batch_part(1); }
  const int32_t* sequences() const noexcept { return batch_part(2); }
  const int32_t* selected() const noexcept { return batch_part(3); }
  int64_t sequence_of_tile(int64_t i) const noexcept {
    return reinterpret_cast<const TokenTile*>(batch_host_.as<int32_t>() + kRoundWords + 4 * options.n_batch_max)[i]
        .sequence;
  }
  const TokenTile* tiles() const noexcept { return reinterpret_cast<const TokenTile*>(batch_part(4)); }
  Handover handover() const noexcept;
  StateView state_view(int32_t state) const noexcept;  // with the batch
  TokenRows token_rows() const noexcept;               // where has_token_rows; nothing otherwise

  const ops::Plan& plan;
  const ops::ExecutorOptions options;
  Stream stream;
  const Card card;
  const Schedule schedule;
  const KernelPlan kernels;  // of the schedule's groups
  const ShardPlace place;
  Landings landings;  // of a shard
  DeviceWeights weights;
  KvCache cache;
  std::unique_ptr<Borrower> borrower;  // never null
  DeviceStates states;                 // of ops that are not borrowed
  bool gathers_land = false;           // the batch's gathers are written there by all shards
  // The op whose rows rank_rows makes for the next run, of a plan that is neither divided nor a shard's; null where it
  // cannot. No other value has its y's memory.
  const ops::Embed* token_table = nullptr;
  bool has_token_rows = false;                  // the batch's are there before it runs
  std::vector<float*> values;                   // per value of the plan
  std::vector<quant::Activations> activations;  // per quantised twin (lower/twins.h)
  std::vector<ops::RopeTable> rope_tables;
  std::vector<DeviceBuffer> rope_device;
  DeviceBuffer partials, arrived, panel;
  DeviceBuffer halves;  // where mode fast has rows of quantised weights decoded
  HopperMemory hopper;
  ExpertMemory by_expert;
  FloatMemory floats;
  PinnedBuffer logits_host, input_host, handed_host;  // the latter two of parts of a split plan

  ops::BatchShape shape;
  int64_t n_tokens = 0, n_tiles = 0, n_segments = 0;  // of the batch; segments rounded up, so that few numbers occur
  int64_t n_tiles_alone = 0;  // where others are not alone: the first tiles, each a token of a sequence of its own
  bool tokens_alone = false;  // every token is a tile: few of them, or each of a sequence of its own

 private:
  float* place_of(ops::ValueId id) const noexcept {
    float* landing = gathers_land ? landings.of(id) : nullptr;
    return landing != nullptr ? landing : values[static_cast<size_t>(id)];
  }
  int64_t rows_max(ops::ValueId id) const noexcept;
  int64_t alone_max() const noexcept { return cuda::alone_max(options); }
  size_t bytes_max(ops::ValueId id) const noexcept;  // of its rows; 0 for kNone
  size_t row_bytes(ops::ValueId id) const noexcept {
    return id == ops::kNone ? 0 : static_cast<size_t>(width(id)) * sizeof(float);
  }
  int64_t rounded_segments(int64_t n_positions) const noexcept;
  const ops::Embed* find_token_table() const noexcept;
  void place_values();
  void place_tables();
  void place_floats();
  void place_halves();
  void place_experts();
  int32_t* batch_part(int64_t i) const noexcept {
    return batch_device_.as<int32_t>() + kRoundWords + i * options.n_batch_max;
  }

  static constexpr int64_t kRoundWords = 4;  // ahead of the batch
  int64_t n_rotations_ = 0;                  // positions whose rotations are on the device
  int64_t n_positions_ = 0;                  // of the longest sequence of the batch, after it
  DeviceBuffer arena_, batch_device_, kept_logits_;
  PinnedBuffer batch_host_;
};

}  // namespace assay::backend::cuda
