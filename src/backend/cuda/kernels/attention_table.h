// The table of the GPU's kernels of attention (attention/attention.h). Where every token of a batch is alone, a query's
// segments of 256 keys are worked on side by side; else tiles of queries walk their segments; of one token, heads and
// cache belong to the kernel too.
//
//   name                  for          heads           cache      card     kernel
//   fast decode attention one token    64, 128         f16        any      attention/fast_attention.cu, mode fast
//   decode attention      one token    8 n, 32 n q8_0  any        any      attention/decode_attention*.cu
//   fast batch attention  alone        64, 128         f16        any      the same
//   batch attention       alone        8 n, 32 n q8_0  any        any      attention/batch_attention.cu
//   split attention       alone        up to 512       any        any      attention/attention.cu
//   fast attention tiles  tiles        64, 128         f16        any      the same
//   attention of Hopper   tiles        64, 128         any        Hopper   attention/attention_hopper.cu
//   attention of prefill  tiles        64, 128, 256    f16        memory   attention/attention_prefill.cu
//   attention tiles       tiles        up to 512       any        any      attention/attention.cu
//
// Attention with soft caps, sinks, chunks, other widths of values: attention/attention_any.cu, for any number of
// tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/kernels/limits.h"
#include "ops/plan/executor.h"

namespace assay::backend::cuda {

struct AttentionShape {
  int64_t head_dim = 0;
  ops::CacheType type_k = ops::CacheType::f16, type_v = ops::CacheType::f16;
  bool fast = false;  // mode fast
};

enum class AttentionUse { one_token, alone, tiles };
enum class AttentionKernel { fast_decode, decode, fast_alone, alone, split, fast_tiles, hopper, prefill, tiles };

struct AttentionRow {
  std::string_view name;  // unique in the table
  AttentionKernel kernel;
  AttentionUse use;
  int64_t grid_max;  // tokens, and segments of a query, at most
  bool (*takes)(const AttentionShape& shape, const Card& card) noexcept;
};

std::span<const AttentionRow> attention_table() noexcept;  // those of higher rank first
// The first that takes the shape, for so many tokens and segments; null: decode has no kernel for it.
const AttentionRow* find_attention_row(AttentionUse use, const AttentionShape& shape, const Card& card,
                                       int64_t n_grid = 1) noexcept;

// The kernels of one op, or group of heads and attention.
struct AttentionChoice {
  const AttentionRow* one_token = nullptr;
  const AttentionRow* alone = nullptr;
  const AttentionRow* alone_beyond = nullptr;  // the grid of `alone`
  const AttentionRow* tiles = nullptr;
  AttentionChoice() = default;
  AttentionChoice(const AttentionShape& shape, const Card& card) noexcept;

  const AttentionRow& alone_at(int64_t n_tokens, int64_t n_segments) const noexcept {
    return n_tokens <= alone->grid_max && n_segments <= alone->grid_max ? *alone : *alone_beyond;
  }
};

// Bytes of shared memory of attention of prefill, which knows heads of 64, 128 and 256; 0: others.
constexpr int prefill_attention_bytes(int64_t head_dim) noexcept {
  return head_dim == 64 || head_dim == 128 ? 115712 : head_dim == 256 ? 148480 : 0;
}

}  // namespace assay::backend::cuda
