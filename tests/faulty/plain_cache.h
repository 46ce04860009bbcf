// The faulty engine's keys and values: one run of floats per sequence and layer, as they are read back after the
// cache's rounding, keys [n_kv_heads, n_ctx, head_dim], then values likewise (the fault that takes too many heads:
// [n_ctx, n_kv_heads, head_dim]).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "faulty/fault.h"
#include "ops/plan/executor.h"

namespace assay::faults {

class PlainCache {
 public:
  PlainCache(std::span<const ops::CacheLayer> layers, ops::CacheType type, int64_t n_ctx, int n_sequences, Fault fault);

  // k, v: [n_kv_heads * head_dim] and [n_kv_heads * v_dim] of one position; v: null where values lie in the keys.
  void store(int sequence, int32_t layer, int64_t position, const float* k, const float* v);
  // head_dim and v_dim floats. n_in_use: positions that the sequence has, which a fault takes for the stride.
  const float* key(int sequence, int32_t layer, int64_t kv_head, int64_t position, int64_t n_in_use) const;
  const float* value(int sequence, int32_t layer, int64_t kv_head, int64_t position, int64_t n_in_use) const;

  int64_t n_positions(int sequence) const { return sequences_[static_cast<size_t>(sequence)].n_positions; }
  int64_t n_ever_stored(int sequence) const { return sequences_[static_cast<size_t>(sequence)].n_ever_stored; }
  void truncate(int sequence, int64_t n_positions);
  // As Executor::visit_cache; q8_0 is shown as the floats that it stands for.
  void visit(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const;
  size_t bytes() const;

 private:
  struct Layer {
    ops::CacheLayer shape;
    std::vector<float> memory;
  };
  struct Sequence {
    std::vector<Layer> layers;
    int64_t n_positions = 0, n_ever_stored = 0;
  };
  const Layer& layer(int sequence, int32_t i) const {
    return sequences_[static_cast<size_t>(sequence)].layers[static_cast<size_t>(i)];
  }
  int64_t cell(const ops::CacheLayer& shape, int64_t kv_head, int64_t position, int64_t n_ctx_taken) const;
  std::vector<float> round(const float* x, int64_t head_dim, bool is_key) const;

  ops::CacheType type_;
  int64_t n_ctx_;
  Fault fault_;
  std::vector<Sequence> sequences_;
};

}  // namespace assay::faults
