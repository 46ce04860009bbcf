// See attention_table.h.
#include "backend/cuda/kernels/attention_table.h"

#include <algorithm>
#include <vector>

namespace assay::backend::cuda {
namespace {

using ops::CacheType;

constexpr int64_t kNoEnd = lower::kAnyTokens;
constexpr int64_t kSegmentsByElement = 8;  // up to here a thread an element merges segments as fast as a block a head
constexpr int64_t kGridMax = 65535;        // of a grid's second and third dimension

bool is_f16(const AttentionShape& s) noexcept { return s.type_k == CacheType::f16 && s.type_v == CacheType::f16; }
bool is_64_or_128(const AttentionShape& s) noexcept { return s.head_dim == 64 || s.head_dim == 128; }

bool is_fast(const AttentionShape& s, const Card&) noexcept { return s.fast && is_64_or_128(s) && is_f16(s); }
bool is_in_pieces(const AttentionShape& s, const Card&) noexcept {
  const bool has_q8 = s.type_k == CacheType::q8_0 || s.type_v == CacheType::q8_0;
  return s.head_dim <= kHeadDimMax && s.head_dim % (has_q8 ? 32 : 8) == 0;
}
bool is_of_halves(const AttentionShape& s, const Card&) noexcept { return is_64_or_128(s) && is_f16(s); }
bool are_four_of_halves(const AttentionShape& s, const Card& card) noexcept {
  return is_of_halves(s, card) && s.n_heads / s.n_kv_heads % 4 == 0;
}
bool are_four(const AttentionShape& s, const Card& card) noexcept {
  return is_in_pieces(s, card) && s.n_heads / s.n_kv_heads % 4 == 0;
}
// Heads that share keys read them together once there is work for the whole device without taking each alone.
int64_t segments_for_four(const AttentionShape& s, const Card& card) noexcept {
  return 2 * card.n_multiprocessors / s.n_heads + 1;
}
bool makes_integers(const AttentionShape& s, const Card&) noexcept { return s.makes_integers; }
bool is_for_hopper(const AttentionShape& s, const Card& card) noexcept { return is_64_or_128(s) && card.is_hopper(); }
bool is_for_prefill(const AttentionShape& s, const Card& card) noexcept {
  const int bytes = prefill_attention_bytes(s.head_dim);
  return is_f16(s) && bytes > 0 && bytes <= card.shared_bytes_max;
}
bool is_any(const AttentionShape&, const Card&) noexcept { return true; }

using enum AttentionUse;
constexpr AttentionRow kAttentionRows[] = {
    {"fast decode attention", AttentionKernel::fast_decode, one_token, kNoEnd, &is_fast},
    {"decode attention of halves, four heads", AttentionKernel::decode_halves_of_four, one_token, kNoEnd,
     &are_four_of_halves, &segments_for_four},
    {"decode attention of halves", AttentionKernel::decode_halves, one_token, kNoEnd, &is_of_halves},
    {"decode attention, four heads", AttentionKernel::decode_of_four, one_token, kNoEnd, &are_four, &segments_for_four},
    {"decode attention", AttentionKernel::decode, one_token, kNoEnd, &is_in_pieces},
    {"fast batch attention", AttentionKernel::fast_alone, alone, kNoEnd, &is_fast},
    {"batch attention", AttentionKernel::alone, alone, kGridMax, &is_in_pieces},
    {"split attention", AttentionKernel::split, alone, kNoEnd, &is_any},
    {"merge with integers", AttentionKernel::merge_integers, merge, kSegmentsByElement, &makes_integers},
    {"merge", AttentionKernel::merge, merge, kNoEnd, &is_any},
    {"fast attention tiles", AttentionKernel::fast_tiles, tiles, kNoEnd, &is_fast},
    {"attention of Hopper", AttentionKernel::hopper, tiles, kNoEnd, &is_for_hopper},
    {"attention of prefill", AttentionKernel::prefill, tiles, kNoEnd, &is_for_prefill},
    {"attention tiles", AttentionKernel::tiles, tiles, kNoEnd, &is_any},
};

}  // namespace

std::span<const AttentionRow> attention_table() noexcept { return kAttentionRows; }

const AttentionRow* find_attention_row(AttentionUse use, const AttentionShape& shape, const Card& card,
                                       int64_t n) noexcept {
  const auto* found = std::ranges::find_if(kAttentionRows, [&](const AttentionRow& row) {
    return row.use == use && n <= row.n_max && row.takes(shape, card) &&
           (row.n_min == nullptr || n >= row.n_min(shape, card));
  });
  return found == std::end(kAttentionRows) ? nullptr : found;
}

AttentionRows::AttentionRows(AttentionUse use, const AttentionShape& shape, const Card& card) {
  if (find_attention_row(use, shape, card) == nullptr) return;
  std::vector<int64_t> cuts = {1};
  for (const AttentionRow& row : kAttentionRows) {
    if (row.use != use || !row.takes(shape, card)) continue;
    if (row.n_min != nullptr) cuts.push_back(row.n_min(shape, card));
    if (row.n_max < kNoEnd) cuts.push_back(row.n_max + 1);
  }
  std::ranges::sort(cuts);
  for (const int64_t begin : cuts) add({begin, kNoEnd, find_attention_row(use, shape, card, begin)});
}

AttentionChoice::AttentionChoice(const AttentionShape& shape, const Card& card)
    : one_token(AttentionUse::one_token, shape, card), alone(AttentionUse::alone, shape, card),
      merge(AttentionUse::merge, shape, card), tiles(find_attention_row(AttentionUse::tiles, shape, card)) {}

AttentionShape attention_shape(const ops::Plan& plan, const ops::ExecutorOptions& options,
                               const ops::Attention& attention, bool makes_integers) {
  const ops::CacheLayer& cache = plan.cache_layers[static_cast<size_t>(attention.layer)];
  return {cache.head_dim,    options.cache_k,      options.cache_v, options.fast,
          attention.n_heads, attention.n_kv_heads, makes_integers};
}

}  // namespace assay::backend::cuda
