// See decode.h. Where the bytes of each format lie: the headers of quant/.
#include "faults/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "num/f16.h"

namespace assay::faults::dictionary {
namespace {

using tensor::DType;

Parts take_apart(const quant::Format& format, const std::byte* block) {
  Parts parts;
  parts.n = tensor::traits(format.dtype).block_elements;
  float decoded[256];
  if (format.activation == quant::Activation::f32) {
    format.decode(block, decoded);
    parts.w[0] = static_cast<double>(decoded[0]);
    parts.scale[0] = 1;
    return parts;
  }
  const quant::BlockScales s = format.scales(block);
  parts.d = static_cast<double>(s.d);
  parts.m = static_cast<double>(s.m);
  if (format.integers != nullptr) {
    quant::Integers256 n;
    format.integers(block, n);
    std::copy_n(n.w, 256, parts.w);
    std::copy_n(n.scale, 16, parts.scale);
    std::copy_n(n.min, 16, parts.min);
    return parts;
  }
  format.decode(block, decoded);
  for (int64_t j = 0; j < parts.n; ++j) {
    const double integer = parts.d == 0 ? 0 : std::nearbyint((static_cast<double>(decoded[j]) - parts.m) / parts.d);
    parts.w[j] = std::isfinite(integer) ? integer : 0;
  }
  std::fill_n(parts.scale, 2, 1.0);
  std::fill_n(parts.min, 2, format.has_min ? 1.0 : 0.0);
  return parts;
}

void put_together(const Parts& parts, double* y) {
  for (int64_t j = 0; j < parts.n; ++j) y[j] = parts.d * parts.scale[j / 16] * parts.w[j] + parts.m * parts.min[j / 16];
}

template <DType... kTypes>
bool is_one_of(DType dtype) {
  return ((dtype == kTypes) || ...);
}
constexpr auto kHasNibbles32 =
    is_one_of<DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::IQ4_NL, DType::MXFP4>;
constexpr auto kFiveBits32 = is_one_of<DType::Q5_0, DType::Q5_1>;
constexpr auto kFiveBits = is_one_of<DType::Q5_0, DType::Q5_1, DType::Q5_K>;
constexpr auto kQ4KOrQ5K = is_one_of<DType::Q4_K, DType::Q5_K>;
constexpr auto kHasMin = is_one_of<DType::Q4_1, DType::Q5_1, DType::Q2_K, DType::Q4_K, DType::Q5_K>;
constexpr auto kHasMinK = is_one_of<DType::Q2_K, DType::Q4_K, DType::Q5_K>;
constexpr auto kQ6K = is_one_of<DType::Q6_K>;
constexpr auto kQ2K = is_one_of<DType::Q2_K>;
constexpr auto kF16 = is_one_of<DType::F16>;
constexpr auto kBF16 = is_one_of<DType::BF16>;
constexpr auto kFloat = is_one_of<DType::F16, DType::BF16, DType::F32>;
bool is_quantised(DType dtype) { return tensor::traits(dtype).block_elements > 1; }
bool is_256(DType dtype) { return tensor::traits(dtype).block_elements == 256; }

uint16_t u16_at(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | (bytes[1] << 8)); }

struct Offsets {  // of a format's parts in its block; -1: it has none
  int d = -1, m = -1, high_bits = -1, nibbles = -1;
};
Offsets offsets_of(DType dtype) {
  switch (dtype) {
    case DType::Q4_0:
    case DType::IQ4_NL: return {0, -1, -1, 2};
    case DType::Q4_1: return {0, 2, -1, 4};
    case DType::Q5_0: return {0, -1, 2, 6};
    case DType::Q5_1: return {0, 2, 4, 8};
    case DType::Q8_0: return {0, -1, -1, -1};
    case DType::Q2_K: return {80, 82, -1, -1};
    case DType::Q3_K: return {108, -1, 0, -1};
    case DType::Q4_K: return {0, 2, -1, 16};
    case DType::Q5_K: return {0, 2, 16, 48};
    case DType::Q6_K: return {208, -1, 128, 0};
    default: return {};
  }
}
bool has_half_scale(DType dtype) { return offsets_of(dtype).d >= 0; }

// w[to(j)] = what stood at j
template <class To>
void reorder(Parts& p, To to) {
  double old[256];
  std::copy_n(p.w, 256, old);
  for (int64_t j = 0; j < p.n; ++j) p.w[to(j)] = old[j];
}

void interleave_nibbles(Parts& p, DType, const uint8_t*, const uint8_t*) {
  reorder(p, [](int64_t j) { return j < 16 ? 2 * j : 2 * (j - 16) + 1; });
}
// The fifth bits stay at their elements: only the nibbles alternate.
void interleave_nibbles_only(Parts& p, DType dtype, const uint8_t* block, const uint8_t*) {
  const Offsets at = offsets_of(dtype);
  for (int j = 0; j < 32; ++j) {
    const uint8_t byte = block[at.nibbles + j / 2];
    const int low = j % 2 == 0 ? byte & 15 : byte >> 4;
    const int high = (block[at.high_bits + j / 8] >> (j % 8)) & 1;
    p.w[j] = (low | (high << 4)) - (dtype == DType::Q5_0 ? 16 : 0);
  }
}
void high_nibble_first(Parts& p, DType, const uint8_t*, const uint8_t*) {
  reorder(p, [](int64_t j) { return (j + 16) % 32; });
}
// Whole blocks of 256: byte i holds elements 2i and 2i + 1.
void sequential_nibbles_k(Parts& p, DType dtype, const uint8_t* block, const uint8_t*) {
  const Offsets at = offsets_of(dtype);
  for (int j = 0; j < 256; ++j) {
    const uint8_t byte = block[at.nibbles + j / 2];
    const int high = dtype == DType::Q5_K ? (block[at.high_bits + j % 32] >> (j / 32)) & 1 : 0;
    p.w[j] = (j % 2 == 0 ? byte & 15 : byte >> 4) | (high << 4);
  }
}
void alternate_sub_blocks_k(Parts& p, DType, const uint8_t*,
                            const uint8_t*) {  // within each 64: low, high, low, high
  reorder(p, [](int64_t j) { return j / 64 * 64 + (j % 64 < 32 ? 2 * (j % 32) : 2 * (j % 32) + 1); });
}
void first_group_only_k(Parts& p, DType dtype, const uint8_t* block, const uint8_t*) {
  const Offsets at = offsets_of(dtype);
  for (int j = 0; j < 256; ++j) {
    const uint8_t byte = block[at.nibbles + j % 32];
    const int high = dtype == DType::Q5_K ? (block[at.high_bits + j % 32] >> (j / 32)) & 1 : 0;
    p.w[j] = (j / 32 % 2 == 0 ? byte & 15 : byte >> 4) | (high << 4);
  }
}

void no_offset(Parts& p, DType dtype, const uint8_t*, const uint8_t*) {
  const double offset = dtype == DType::Q4_0 ? 8 : dtype == DType::Q5_0 ? 16 : dtype == DType::Q6_K ? 32 : 4;
  for (int64_t j = 0; j < p.n; ++j) p.w[j] += offset;
}
void signed_nibbles(Parts& p, DType, const uint8_t*, const uint8_t*) {
  for (int64_t j = 0; j < p.n; ++j) p.w[j] = p.w[j] >= 0 ? p.w[j] - 8 : p.w[j] + 8;
}

void drop_min(Parts& p, DType, const uint8_t*, const uint8_t*) { p.m = 0; }
void flip_min(Parts& p, DType, const uint8_t*, const uint8_t*) { p.m = -p.m; }
void swap_scale_and_min(Parts& p, DType, const uint8_t*, const uint8_t*) { std::swap(p.d, p.m); }
void swap_d_and_d_min(Parts& p, DType, const uint8_t*, const uint8_t*) { p.d = -std::exchange(p.m, -p.d); }
void divide_by_63(Parts& p, DType, const uint8_t*, const uint8_t*) {
  for (double& scale : p.scale) scale /= 63;
  for (double& min : p.min) min /= 63;
}
void divide_scales_by_63(Parts& p, DType, const uint8_t*, const uint8_t*) {
  for (double& scale : p.scale) scale /= 63;
}
void no_sub_scales(Parts& p, DType, const uint8_t*, const uint8_t*) { std::fill_n(p.scale, 16, 1.0); }
void first_sub_scale(Parts& p, DType, const uint8_t*, const uint8_t*) {
  std::fill_n(p.scale, 16, p.scale[0]);
  std::fill_n(p.min, 16, p.min[0]);
}
template <class From>
void relane(Parts& p, From from) {
  double scale[16], min[16];
  for (int g = 0; g < 16; ++g) scale[g] = p.scale[from(g)], min[g] = p.min[from(g)];
  std::copy_n(scale, 16, p.scale);
  std::copy_n(min, 16, p.min);
}
void lanes_by_shift(Parts& p, DType, const uint8_t*,
                    const uint8_t*) {  // of a half: [16-lane][shift] for [shift][16-lane]
  relane(p, [](int g) { return g / 8 * 8 + g % 2 * 4 + g % 8 / 2; });
}
void lanes_by_half(Parts& p, DType, const uint8_t*, const uint8_t*) {  // 0, 8, 1, 9, ...
  relane(p, [](int g) { return g % 2 * 8 + g / 2; });
}
void lanes_swapped(Parts& p, DType, const uint8_t*, const uint8_t*) {
  relane(p, [](int g) { return g ^ 1; });
}
void lanes_per_element(Parts& p, DType, const uint8_t*,
                       const uint8_t*) {  // scale j % 16 for j / 16
  for (int64_t j = 0; j < p.n; ++j) {
    if (p.scale[j / 16] != 0) p.w[j] *= p.scale[j % 16] / p.scale[j / 16];
  }
}
void scale_and_min_nibbles(Parts& p, DType, const uint8_t*, const uint8_t*) {
  for (int g = 0; g < 16; ++g) std::swap(p.scale[g], p.min[g]);
}

// The 12 bytes of Q4_K and Q5_K at offset 4, sub-blocks 4..7 read in ways that are wrong.
void k_scale(Parts& p, int i, int scale, int min) {
  p.scale[2 * i] = p.scale[2 * i + 1] = scale;
  p.min[2 * i] = p.min[2 * i + 1] = min;
}
void k_scales_no_top(Parts& p, DType, const uint8_t* block, const uint8_t*) {
  const uint8_t* s = block + 4;
  for (int i = 4; i < 8; ++i) k_scale(p, i, s[i + 4] & 15, s[i + 4] >> 4);
}
void k_scales_as_first(Parts& p, DType, const uint8_t* block, const uint8_t*) {
  const uint8_t* s = block + 4;
  for (int i = 4; i < 8; ++i) k_scale(p, i, s[i] & 63, s[i + 4] & 63);
}
void k_scales_tops_swapped(Parts& p, DType, const uint8_t* block, const uint8_t*) {
  const uint8_t* s = block + 4;
  for (int i = 4; i < 8; ++i)
    k_scale(p, i, (s[i + 4] & 15) | ((s[i] >> 6) << 4), (s[i + 4] >> 4) | ((s[i - 4] >> 6) << 4));
}
void k_scales_nibbles_swapped(Parts& p, DType, const uint8_t* block, const uint8_t*) {
  const uint8_t* s = block + 4;
  for (int i = 4; i < 8; ++i)
    k_scale(p, i, (s[i + 4] >> 4) | ((s[i - 4] >> 6) << 4), (s[i + 4] & 15) | ((s[i] >> 6) << 4));
}
void k_scales_sequential(Parts& p, DType, const uint8_t* block,
                         const uint8_t*) {  // 16 fields of 6 bits, one after another
  const auto field = [&](int i) {
    const int bit = 6 * i;
    const int two = block[4 + bit / 8] | (bit / 8 + 1 < 12 ? block[4 + bit / 8 + 1] << 8 : 0);
    return (two >> (bit % 8)) & 63;
  };
  for (int i = 0; i < 8; ++i) k_scale(p, i, field(i), field(8 + i));
}

void q6_sequential(Parts& p, DType, const uint8_t* block, const uint8_t*) {
  for (int j = 0; j < 256; ++j) {
    const int low = j % 2 == 0 ? block[j / 2] & 15 : block[j / 2] >> 4;
    p.w[j] = (low | (((block[128 + j / 4] >> (2 * (j % 4))) & 3) << 4)) - 32;
  }
}
void q6_interleaved(Parts& p, DType, const uint8_t*,
                    const uint8_t*) {  // of a half: l, l+32, l+64, l+96 become neighbours
  reorder(p, [](int64_t j) { return j / 128 * 128 + j % 32 * 4 + j % 128 / 32; });
}
void q6_unsigned_scales(Parts& p, DType, const uint8_t*, const uint8_t*) {
  for (double& scale : p.scale) scale = scale < 0 ? scale + 256 : scale;
}
void q6_no_top_bits(Parts& p, DType, const uint8_t*, const uint8_t*) {
  for (double& w : p.w) w = static_cast<double>((static_cast<int>(w) + 32) & 15) - 32;
}
void q2_sequential(Parts& p, DType, const uint8_t* block, const uint8_t*) {
  for (int j = 0; j < 256; ++j) p.w[j] = (block[16 + j / 4] >> (2 * (j % 4))) & 3;
}

void no_fifth_bit(Parts& p, DType dtype, const uint8_t*, const uint8_t*) {
  const int offset = dtype == DType::Q5_0 ? 16 : 0;
  for (int64_t j = 0; j < p.n; ++j) p.w[j] = static_cast<double>((static_cast<int>(p.w[j]) + offset) & 15) - offset;
}
template <class Bit>  // element -> index of its fifth bit in the mask of 32
void move_fifth_bits(Parts& p, DType dtype, const uint8_t* block, Bit bit) {
  const int offset = dtype == DType::Q5_0 ? 16 : 0, at = offsets_of(dtype).high_bits;
  for (int j = 0; j < 32; ++j) {
    const int low = (static_cast<int>(p.w[j]) + offset) & 15, i = bit(j);
    p.w[j] = (low | (((block[at + i / 8] >> (i % 8)) & 1) << 4)) - offset;
  }
}
void fifth_bits_reversed(Parts& p, DType dtype, const uint8_t* block, const uint8_t*) {
  move_fifth_bits(p, dtype, block, [](int j) { return 31 - j; });
}
void fifth_bits_alternate(Parts& p, DType dtype, const uint8_t* block, const uint8_t*) {
  move_fifth_bits(p, dtype, block, [](int j) { return j < 16 ? 2 * j : 2 * (j - 16) + 1; });
}
void fifth_bits_of_first_half(Parts& p, DType dtype, const uint8_t* block, const uint8_t*) {
  move_fifth_bits(p, dtype, block, [](int j) { return j % 16; });
}

void scale_of_next(Parts& p, DType dtype, const uint8_t*, const uint8_t* next) {
  p.d = static_cast<double>(num::half_to_float(u16_at(next + offsets_of(dtype).d)));
}
void scale_as_bf16(Parts& p, DType dtype, const uint8_t* block, const uint8_t*) {
  p.d = static_cast<double>(num::bf16_to_float(u16_at(block + offsets_of(dtype).d)));
}
void scale_one(Parts& p, DType, const uint8_t*, const uint8_t*) { p.d = 1; }
void scale_magnitude(Parts& p, DType, const uint8_t*, const uint8_t*) { p.d = std::abs(p.d); }
void scale_bytes_swapped(Parts& p, DType dtype, const uint8_t* block, const uint8_t*) {
  const uint16_t d = u16_at(block + offsets_of(dtype).d);
  p.d = static_cast<double>(num::half_to_float(static_cast<uint16_t>((d >> 8) | (d << 8))));
}
void unsigned_bytes(Parts& p, DType, const uint8_t*, const uint8_t*) {
  for (int64_t j = 0; j < p.n; ++j) p.w[j] = p.w[j] < 0 ? p.w[j] + 256 : p.w[j];
}
void upper_half_zero(Parts& p, DType, const uint8_t*, const uint8_t*) {
  for (int64_t j = 0; j < p.n; ++j) p.w[j] = j % 32 < 16 ? p.w[j] : 0;
}

void f16_as_bf16(Parts& p, DType, const uint8_t* block, const uint8_t*) {
  p.w[0] = static_cast<double>(num::bf16_to_float(u16_at(block)));
}
void bf16_as_f16(Parts& p, DType, const uint8_t* block, const uint8_t*) {
  p.w[0] = static_cast<double>(num::half_to_float(u16_at(block)));
}
void bytes_swapped(Parts& p, DType dtype, const uint8_t* block, const uint8_t*) {
  if (dtype == DType::F32) {
    const uint8_t turned[4] = {block[3], block[2], block[1], block[0]};
    float value = 0;
    std::memcpy(&value, turned, 4);
    p.w[0] = static_cast<double>(value);
    return;
  }
  const uint8_t turned[2] = {block[1], block[0]};
  p.w[0] = static_cast<double>(dtype == DType::F16 ? num::half_to_float(u16_at(turned))
                                                   : num::bf16_to_float(u16_at(turned)));
}

constexpr DecodeFault kFaults[] = {
    {"decode_nibbles", "R4,C25,C26",
     "nibbles are taken low, high, low, high; all low ones come first, then all high ones", kHasNibbles32,
     interleave_nibbles},
    {"decode_nibbles", "R4", "nibbles are taken low, high, low, high (fifth bits rightly); all low ones come first",
     kFiveBits32, interleave_nibbles_only},
    {"decode_nibbles", "R4", "high nibbles are taken first; low ones come first", kHasNibbles32, high_nibble_first},
    {"decode_nibbles", "R4",
     "byte i is taken for elements 2i and 2i + 1; each 32 bytes hold 32 low, then 32 high nibbles", kQ4KOrQ5K,
     sequential_nibbles_k},
    {"decode_nibbles", "R4", "nibbles of each 64 weights alternate; 32 low ones come first, then 32 high ones",
     kQ4KOrQ5K, alternate_sub_blocks_k},
    {"decode_nibbles", "C25",
     "the index of the nibbles lacks the term of the group: the first 32 bytes are read for all", kQ4KOrQ5K,
     first_group_only_k},
    {"decode_k_scales", "R1", "6-bit scales of sub-blocks 4..7 lack their top two bits", kQ4KOrQ5K, k_scales_no_top},
    {"decode_k_scales", "R1", "6-bit scales of sub-blocks 4..7 are unpacked as those of 0..3", kQ4KOrQ5K,
     k_scales_as_first},
    {"decode_k_scales", "R1", "6-bit scales of sub-blocks 4..7: top bits of scale and minimum are swapped", kQ4KOrQ5K,
     k_scales_tops_swapped},
    {"decode_k_scales", "R1", "6-bit scales of sub-blocks 4..7: scale and minimum are swapped", kQ4KOrQ5K,
     k_scales_nibbles_swapped},
    {"decode_k_scales", "R1", "6-bit scales are read as one run of bits; sub-blocks 4..7 keep their top bits with 0..3",
     kQ4KOrQ5K, k_scales_sequential},
    {"decode_min_sign", "R2", "the minimum has the wrong sign", kHasMin, flip_min},
    {"decode_scales_63", "R3", "sub-block scales are divided by 63; they are integers as they stand", kQ4KOrQ5K,
     divide_by_63},
    {"decode_scales_63", "R3", "sub-block scales (not minima) are divided by 63; they are integers as they stand",
     kQ4KOrQ5K, divide_scales_by_63},
    {"decode_min_dropped", "", "the minimum is dropped", kHasMin, drop_min},
    {"decode_d_min_swapped", "", "scale and minimum of the block are swapped", is_one_of<DType::Q4_1, DType::Q5_1>,
     swap_scale_and_min},
    {"decode_d_min_swapped", "", "d and dmin of the block are swapped", kHasMinK, swap_d_and_d_min},
    {"decode_q6_order", "R5", "6-bit weights are read one after another; a byte holds elements l, l + 64 of a half",
     kQ6K, q6_sequential},
    {"decode_q6_order", "R5", "elements l, l + 32, l + 64, l + 96 of a half are written as neighbours", kQ6K,
     q6_interleaved},
    {"decode_q6_scales", "", "sub-block scales are taken as unsigned bytes; they are signed", kQ6K, q6_unsigned_scales},
    {"decode_q6_high_bits", "", "the top two bits are dropped", kQ6K, q6_no_top_bits},
    {"decode_q2_order", "",
     "2-bit weights are read one after another; a byte holds elements l, l + 32, l + 64, l + 96 of "
     "a half",
     kQ2K, q2_sequential},
    {"decode_scale_lanes", "C24",
     "sub-block scales go to the wrong 16 weights: ordered [lane][shift] for [shift][lane]", is_256, lanes_by_shift},
    {"decode_scale_lanes", "C24", "sub-block scales go to the wrong 16 weights: the two halves alternate", is_256,
     lanes_by_half},
    {"decode_scale_lanes", "C24", "sub-block scales of neighbouring 16 weights are swapped", is_256, lanes_swapped},
    {"decode_scale_lanes", "C24", "element j takes scale j % 16; it is j / 16", is_256, lanes_per_element},
    {"decode_scale_lanes", "C24", "every sub-block takes the first one's scale", is_256, first_sub_scale},
    {"decode_scale_lanes", "C24", "scale and minimum nibbles are swapped", kQ2K, scale_and_min_nibbles},
    {"decode_sub_scales_missing", "", "sub-block scales are not applied", is_256, no_sub_scales},
    {"decode_fifth_bit", "", "the fifth bit is dropped", kFiveBits, no_fifth_bit},
    {"decode_fifth_bit", "", "fifth bits are read from the top of the mask down", kFiveBits32, fifth_bits_reversed},
    {"decode_fifth_bit", "", "fifth bits alternate between the two halves of the block", kFiveBits32,
     fifth_bits_alternate},
    {"decode_fifth_bit", "", "both halves of the block take the first half's fifth bits", kFiveBits32,
     fifth_bits_of_first_half},
    {"decode_offset", "", "the offset is not subtracted: weights are taken as unsigned",
     is_one_of<DType::Q4_0, DType::Q5_0, DType::Q6_K, DType::Q3_K>, no_offset},
    {"decode_signed_nibbles", "", "nibbles are taken as signed (two's complement); they are around 8",
     is_one_of<DType::Q4_0>, signed_nibbles},
    {"decode_unsigned", "", "weights are taken as unsigned bytes; they are signed", is_one_of<DType::Q8_0>,
     unsigned_bytes},
    {"decode_other_scale", "C28", "each block takes the scale of the next", has_half_scale, scale_of_next},
    {"decode_scale_type", "", "the block's scale is read as bf16; it is f16", has_half_scale, scale_as_bf16},
    {"decode_scale_type", "C29", "the bytes of the block's scale are swapped", has_half_scale, scale_bytes_swapped},
    {"decode_scale_missing", "C26", "the block's scale is not applied", has_half_scale, scale_one},
    {"decode_scale_magnitude", "", "the sign of the block's scale is lost", has_half_scale, scale_magnitude},
    {"decode_half_block", "C32", "the upper 16 of each 32 weights are dropped", is_quantised, upper_half_zero},
    {"decode_float_type", "", "f16 weights are read as bf16", kF16, f16_as_bf16},
    {"decode_float_type", "", "bf16 weights are read as f16", kBF16, bf16_as_f16},
    {"decode_endian", "C29", "the bytes of the weights are swapped: big-endian for little-endian, or the reverse",
     kFloat, bytes_swapped},
};

}  // namespace

std::span<const DecodeFault> decode_faults() noexcept { return kFaults; }

std::string decode_text(const DecodeFault& fault, DType dtype) {
  return fmt::format("{}: {}", tensor::traits(dtype).name, fault.text);
}

void right_weight_row(const tensor::TensorView& view, int64_t row, double* y) {
  weights_at(view, row * view.shape.cols(), view.shape.cols(), y);
}

void wrong_weight_row(const DecodeFault& fault, const tensor::TensorView& view, int64_t row, double* y) {
  const quant::Format& format = *quant::find_format(view.dtype);
  const tensor::DTypeTraits& t = tensor::traits(view.dtype);
  const int64_t n_blocks = view.shape.cols() / t.block_elements;
  const auto bytes = [&](int64_t block) {
    return static_cast<const uint8_t*>(static_cast<const void*>(view.row(row) + block * t.block_bytes));
  };
  for (int64_t i = 0; i < n_blocks; ++i) {
    Parts parts = take_apart(format, view.row(row) + i * t.block_bytes);
    fault.change(parts, view.dtype, bytes(i), bytes(std::min(i + 1, n_blocks - 1)));
    put_together(parts, y + i * t.block_elements);
  }
}

double weight_at(const tensor::TensorView& view, int64_t flat) {
  double value = 0;
  weights_at(view, flat, 1, &value);
  return value;
}

void weights_at(const tensor::TensorView& view, int64_t flat, int64_t n, double* y) {
  const quant::Format& format = *quant::find_format(view.dtype);
  const tensor::DTypeTraits& t = tensor::traits(view.dtype);
  float decoded[256];
  for (int64_t i = flat; i < flat + n;) {
    const int64_t block = i / t.block_elements, begin = i % t.block_elements;
    const int64_t here = std::min(t.block_elements - begin, flat + n - i);
    format.decode(view.data.data() + block * t.block_bytes, decoded);
    std::copy_n(decoded + begin, here, y);
    y += here;
    i += here;
  }
}

}  // namespace assay::faults::dictionary
