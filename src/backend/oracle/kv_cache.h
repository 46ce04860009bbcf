// The oracle's KV cache: float64, nothing rounded, position-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/oracle/oracle_ops.h"
#include "base/aligned_buffer.h"
#include "ops/plan/plan.h"

namespace assay::backend::oracle {

class KvCache {
 public:
  KvCache(std::span<const ops::CacheLayer> layers, int64_t n_ctx, int n_sequences);

  // k, v: [n_kv_heads * head_dim] of one position; v: null where values lie in the keys
  void store(int sequence, int32_t layer, int64_t position, const double* k, const double* v);
  // A head's keys and values of all positions.
  HeadCache head(int sequence, int32_t layer, int64_t head) const;

  void truncate(int sequence, int64_t n_positions);
  void extend(int sequence, int64_t n_positions);  // the positions that are there now
  int64_t n_positions(int sequence) const { return n_positions_[static_cast<size_t>(sequence)]; }
  int64_t n_ctx() const noexcept { return n_ctx_; }
  int n_sequences() const noexcept { return static_cast<int>(n_positions_.size()); }
  void visit(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const;
  size_t bytes() const noexcept { return memory_.size(); }

 private:
  struct Layer {
    ops::CacheLayer shape;
    int64_t offset = 0;  // elements from a sequence's begin to K; V follows it
    int64_t k_width() const noexcept { return shape.n_kv_heads * shape.head_dim; }
    int64_t v_width() const noexcept { return shape.n_kv_heads * shape.stored_v_dim(); }
  };
  const double* k_begin(int sequence, int32_t layer) const;
  const double* v_begin(int sequence, int32_t layer) const;

  std::vector<Layer> layers_;
  int64_t n_ctx_ = 0;
  int64_t sequence_elements_ = 0;
  std::vector<int64_t> n_positions_;
  base::AlignedBuffer memory_;
};

}  // namespace assay::backend::oracle
