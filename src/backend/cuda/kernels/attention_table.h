// The table of the GPU's kernels of attention (attention/attention.h). Where every token of a batch is alone, a query's
// segments of 256 keys are worked on side by side and merged; else tiles of queries walk their segments; of one token,
// heads and cache belong to the kernel too.
//
//   name                                  for        heads           cache  card    kernel
//   fast decode attention                 one token  64, 128         f16    any     attention/fast_attention.cu, mode fast
//   decode attention of halves, four heads           64, 128         f16    filled  attention/decode_attention_f16.cu
//   decode attention of halves            one token  64, 128         f16    any     the same
//   decode attention, four heads          one token  8 n, 32 n q8_0  any    filled  attention/decode_attention.cu
//   decode attention                      one token  8 n, 32 n q8_0  any    any     the same
//   fast batch attention                  alone      64, 128         f16    any     attention/fast_attention.cu
//   batch attention                       alone      8 n, 32 n q8_0  any    any     attention/batch_attention.cu
//   split attention                       alone      up to 512       any    any     attention/attention.cu
//   merge with integers                   merge      any             any    any     rows/fused.cu
//   merge                                 merge      any             any    any     attention/attention.cu
//   fast attention tiles                  tiles      64, 128         f16    any     attention/fast_attention.cu
//   attention of Hopper                   tiles      64, 128         any    Hopper  attention/attention_hopper.cu
//   attention of prefill                  tiles      64, 128, 256    f16    memory  attention/attention_prefill.cu
//   attention tiles                       tiles      up to 512       any    any     attention/attention.cu
//
// Four heads that share their keys are one block of threads where there are segments enough to fill the card all the
// same. The first row that takes a shape wins; resolved once, into ranges of what a row counts.
//
// Attention with soft caps, sinks, chunks, other widths of values: attention/attention_any.cu, for any number of
// tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/kernels/limits.h"
#include "lower/token_ranges.h"
#include "ops/attention/attention.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

struct AttentionShape {
  int64_t head_dim = 0;
  ops::CacheType type_k = ops::CacheType::f16, type_v = ops::CacheType::f16;
  bool fast = false;  // mode fast
  int64_t n_heads = 1, n_kv_heads = 1;
  bool makes_integers = false;  // of what it makes
};
AttentionShape attention_shape(const ops::Plan& plan, const ops::ExecutorOptions& options,
                               const ops::Attention& attention, bool makes_integers);

// What its rows count: of one token, and of a merge, the segments of a query; of tokens that are alone, the larger of
// their number and that of a query's segments; of tiles nothing.
enum class AttentionUse { one_token, alone, merge, tiles };
enum class AttentionKernel {
  fast_decode,
  decode_halves_of_four,
  decode_halves,
  decode_of_four,
  decode,
  fast_alone,
  alone,
  split,
  merge_integers,
  merge,
  fast_tiles,
  hopper,
  prefill,
  tiles
};

struct AttentionRow {
  std::string_view name;  // unique in the table
  AttentionKernel kernel;
  AttentionUse use;
  int64_t n_max;  // of what its use counts
  bool (*takes)(const AttentionShape& shape, const Card& card) noexcept;
  int64_t (*n_min)(const AttentionShape& shape, const Card& card) noexcept = nullptr;  // null: 1
};

std::span<const AttentionRow> attention_table() noexcept;  // those of higher rank first
// The first that takes the shape, with so many of what its use counts; null: decode has no kernel for it.
const AttentionRow* find_attention_row(AttentionUse use, const AttentionShape& shape, const Card& card,
                                       int64_t n = 1) noexcept;

// The rows of one use, by what they count.
class AttentionRows : public lower::RowRanges<AttentionRow> {
 public:
  AttentionRows(AttentionUse use, const AttentionShape& shape, const Card& card);
  bool is_empty() const noexcept { return ranges().empty(); }
};

// The kernels of one op, or group of heads and attention.
struct AttentionChoice {
  AttentionRows one_token;  // empty: decode has no kernel
  AttentionRows alone, merge;
  const AttentionRow* tiles = nullptr;
  AttentionChoice(const AttentionShape& shape, const Card& card);

  const AttentionRow& alone_at(int64_t n_tokens, int64_t n_segments) const noexcept {
    return alone.at(std::max(n_tokens, n_segments));
  }
};

// Bytes of shared memory of attention of prefill, which knows heads of 64, 128 and 256; 0: others.
constexpr int prefill_attention_bytes(int64_t head_dim) noexcept {
  return head_dim == 64 || head_dim == 128 ? 115712 : head_dim == 256 ? 148480 : 0;
}

}  // namespace assay::backend::cuda
