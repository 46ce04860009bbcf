// See attention_table.h.
#include "backend/cuda/kernels/attention_table.h"

#include <algorithm>

namespace assay::backend::cuda {
namespace {

using ops::CacheType;

constexpr int64_t kNoEnd = int64_t{1} << 62;
constexpr int64_t kGridMax = 65535;  // of a grid's second and third dimension

bool is_f16(const AttentionShape& s) noexcept { return s.type_k == CacheType::f16 && s.type_v == CacheType::f16; }
bool is_64_or_128(const AttentionShape& s) noexcept { return s.head_dim == 64 || s.head_dim == 128; }

bool is_fast(const AttentionShape& s, const Card&) noexcept { return s.fast && is_64_or_128(s) && is_f16(s); }
bool is_in_pieces(const AttentionShape& s, const Card&) noexcept {
  const bool has_q8 = s.type_k == CacheType::q8_0 || s.type_v == CacheType::q8_0;
  return s.head_dim <= kHeadDimMax && s.head_dim % (has_q8 ? 32 : 8) == 0;
}
bool is_for_hopper(const AttentionShape& s, const Card& card) noexcept { return is_64_or_128(s) && card.is_hopper(); }
bool is_for_prefill(const AttentionShape& s, const Card& card) noexcept {
  const int bytes = prefill_attention_bytes(s.head_dim);
  return is_f16(s) && bytes > 0 && bytes <= card.shared_bytes_max;
}
bool is_any(const AttentionShape&, const Card&) noexcept { return true; }

using enum AttentionUse;
constexpr AttentionRow kAttentionRows[] = {
    {"fast decode attention", AttentionKernel::fast_decode, one_token, kNoEnd, &is_fast},
    {"decode attention", AttentionKernel::decode, one_token, kNoEnd, &is_in_pieces},
    {"fast batch attention", AttentionKernel::fast_alone, alone, kNoEnd, &is_fast},
    {"batch attention", AttentionKernel::alone, alone, kGridMax, &is_in_pieces},
    {"split attention", AttentionKernel::split, alone, kNoEnd, &is_any},
    {"fast attention tiles", AttentionKernel::fast_tiles, tiles, kNoEnd, &is_fast},
    {"attention of Hopper", AttentionKernel::hopper, tiles, kNoEnd, &is_for_hopper},
    {"attention of prefill", AttentionKernel::prefill, tiles, kNoEnd, &is_for_prefill},
    {"attention tiles", AttentionKernel::tiles, tiles, kNoEnd, &is_any},
};

}  // namespace

std::span<const AttentionRow> attention_table() noexcept { return kAttentionRows; }

const AttentionRow* find_attention_row(AttentionUse use, const AttentionShape& shape, const Card& card,
                                       int64_t n_grid) noexcept {
  const auto* found = std::ranges::find_if(kAttentionRows, [&](const AttentionRow& row) {
    return row.use == use && n_grid <= row.grid_max && row.takes(shape, card);
  });
  return found == std::end(kAttentionRows) ? nullptr : found;
}

AttentionChoice::AttentionChoice(const AttentionShape& shape, const Card& card) noexcept
    : one_token(find_attention_row(AttentionUse::one_token, shape, card)),
      alone(find_attention_row(AttentionUse::alone, shape, card)),
      alone_beyond(find_attention_row(AttentionUse::alone, shape, card, kGridMax + 1)),
      tiles(find_attention_row(AttentionUse::tiles, shape, card)) {}

}  // namespace assay::backend::cuda
