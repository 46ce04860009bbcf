// The codebook formats (codebook_search.h) packed into their blocks.
#pragma once

#include "quant/encode/codebook_search.h"
#include "quant/encode/gain.h"
#include "quant/encode/large_weights.h"
#include "quant/iq1_s.h"
#include "quant/iq2_s.h"
#include "quant/iq2_xs.h"
#include "quant/iq2_xxs.h"
#include "quant/iq3_s.h"
#include "quant/iq3_xxs.h"

namespace assay::quant::encode {

ASSAY_TABLE int8_t kLevelsOfIq1[3] = {-8, 0, 8};
ASSAY_TABLE int8_t kLevelsOfIq2[3] = {8, 25, 43};
ASSAY_TABLE int8_t kLevelsOfIq3Xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
ASSAY_TABLE int8_t kLevelsOfIq3S[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// A search done: unit, factors, rows and signs; nullopt-like where all is zero.
template <class Shape>
struct CodebookFound {
  CodebookChoice<Shape> choice;
  CodebookRows rows;
  bool is_zero() const noexcept { return choice.unit == 0; }
};

// Of grids without signs of their own.
template <class L, class Shape>
float gain_of_rows(const typename Shape::Table& table, const CodebookInput& in,
                   const CodebookFound<Shape>& found) noexcept {
  constexpr int kWidth = Shape::kWidth;
  float factors[16], y[256];
  lane_factors<L, Shape>().store(factors);
  for (int part = 0; part < Shape::kParts; ++part) {
    const int row = found.rows.row[part], at = part * kWidth;
    const float scale = found.choice.unit * factors[found.choice.lane[part / Shape::kPartsOfGroup]];
    const int wrong = (found.rows.signs[at / 8] ^ in.negative[at / 8]) >> (at % 8);
    const auto& level = table.level[row / 16];
    for (int j = 0; j < kWidth; ++j) {
      const float value = scale * level[j][row % 16];
      y[at + j] = (wrong >> j) & 1 ? -value : value;
    }
  }
  GainSums<L> sums;
  for (int j = 0; j < 256; j += L::kLanes) sums.add(L::load(in.x + j), L::load(y + j));
  return sums.gain();
}

template <class L, class Shape>
CodebookFound<Shape> search_codebook(const typename Shape::Table& table, const Values& v, float held,
                                     Effort effort) noexcept {
  const CodebookInput in = codebook_input<Shape::kSigns>(v);
  CodebookFound<Shape> found{choose_codebook<L, Shape>(table, in, held, effort), {}};
  if (found.is_zero()) return found;
  found.rows = rows_of_choice<L, Shape>(table, in, found.choice);
  if (regains<typename Shape::Levels>(v) && !Shape::kShifted) {  // IQ1_S loses so much that its error would pass ggml's
    found.choice.unit = unit_of_half<L>(found.choice.unit * gain_of_rows<L, Shape>(table, in, found), held);
  }
  return found;
}

// A word of 32 bits: four times 7 sign bits, then the factor's number.
template <class Shape>
ASSAY_FN uint32_t signs_and_factor(const CodebookFound<Shape>& found, int group) noexcept {
  uint32_t word = static_cast<uint32_t>(found.choice.lane[group]) << 28;
  for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(found.rows.signs[4 * group + i] & 127) << (7 * i);
  return word;
}

template <class L>
struct CodebookIq2Xxs {
  using Block = BlockIQ2_XXS;
  using Shape = CodebookShape<256, 8, 32, 16, Signs::even_8, Table<kLevelsOfIq2, 3>>;
  static Block encode(const Values& v, Effort effort) noexcept {
    const CodebookFound<Shape> found = search_codebook<L, Shape>(kTableIq2Xxs, v, 0.125f, effort);
    Block b{};
    if (found.is_zero()) return b;
    b.d = L::half_bits(found.choice.unit * 8);
    for (int group = 0; group < 8; ++group) {
      for (int i = 0; i < 4; ++i) b.q[8 * group + i] = static_cast<uint8_t>(found.rows.row[4 * group + i]);
      const uint32_t word = signs_and_factor(found, group);
      std::memcpy(b.q + 8 * group + 4, &word, 4);
    }
    return b;
  }
};

template <class L>
struct CodebookIq2Xs {
  using Block = BlockIQ2_XS;
  using Shape = CodebookShape<512, 8, 16, 16, Signs::even_8, Table<kLevelsOfIq2, 3>>;
  static Block encode(const Values& v, Effort effort) noexcept {
    const CodebookFound<Shape> found = search_codebook<L, Shape>(kTableIq2Xs, v, 0.125f, effort);
    Block b{};
    if (found.is_zero()) return b;
    b.d = L::half_bits(found.choice.unit * 8);
    for (int i = 0; i < 32; ++i) b.q[i] = static_cast<uint16_t>(found.rows.row[i] | ((found.rows.signs[i] & 127) << 9));
    for (int i = 0; i < 8; ++i)
      b.sub_scales[i] = static_cast<uint8_t>(found.choice.lane[2 * i] | (found.choice.lane[2 * i + 1] << 4));
    return b;
  }
};

template <class L>
struct CodebookIq2S {
  using Block = BlockIQ2_S;
  using Shape = CodebookShape<1024, 8, 16, 16, Signs::free, Table<kLevelsOfIq2, 3>>;
  static Block encode(const Values& v, Effort effort) noexcept {
    const CodebookFound<Shape> found = search_codebook<L, Shape>(kTableIq2S, v, 0.125f, effort);
    Block b{};
    if (found.is_zero()) return b;
    b.d = L::half_bits(found.choice.unit * 8);
    for (int i = 0; i < 32; ++i) {
      b.q[i] = static_cast<uint8_t>(found.rows.row[i] & 255);
      b.signs[i] = found.rows.signs[i];
      b.high_bits[i / 4] = static_cast<uint8_t>(b.high_bits[i / 4] | ((found.rows.row[i] >> 8) << (2 * (i % 4))));
    }
    for (int i = 0; i < 8; ++i)
      b.sub_scales[i] = static_cast<uint8_t>(found.choice.lane[2 * i] | (found.choice.lane[2 * i + 1] << 4));
    return b;
  }
};

template <class L>
struct CodebookIq3Xxs {
  using Block = BlockIQ3_XXS;
  using Shape = CodebookShape<256, 4, 32, 16, Signs::even_4, Table<kLevelsOfIq3Xxs, 8>>;
  static Block encode(const Values& v, Effort effort) noexcept {
    const CodebookFound<Shape> found = search_codebook<L, Shape>(kTableIq3Xxs, v, 0.25f, effort);
    Block b{};
    if (found.is_zero()) return b;
    b.d = L::half_bits(found.choice.unit * 4);
    for (int i = 0; i < 64; ++i) b.q[i] = static_cast<uint8_t>(found.rows.row[i]);
    for (int group = 0; group < 8; ++group) {
      const uint32_t word = signs_and_factor(found, group);
      std::memcpy(b.signs_and_scales + 4 * group, &word, 4);
    }
    return b;
  }
};

template <class L>
struct CodebookIq3S {
  using Block = BlockIQ3_S;
  using Shape = CodebookShape<512, 4, 32, 16, Signs::free, Table<kLevelsOfIq3S, 8>>;
  static Block encode(const Values& v, Effort effort) noexcept {
    const CodebookFound<Shape> found = search_codebook<L, Shape>(kTableIq3S, v, 1, effort);
    Block b{};
    if (found.is_zero()) return b;
    b.d = L::half_bits(found.choice.unit);
    for (int i = 0; i < 64; ++i) {
      b.q[i] = static_cast<uint8_t>(found.rows.row[i] & 255);
      b.high_bits[i / 8] = static_cast<uint8_t>(b.high_bits[i / 8] | ((found.rows.row[i] >> 8) << (i % 8)));
    }
    for (int i = 0; i < 32; ++i) b.signs[i] = found.rows.signs[i];
    for (int i = 0; i < 4; ++i)
      b.sub_scales[i] = static_cast<uint8_t>(found.choice.lane[2 * i] | (found.choice.lane[2 * i + 1] << 4));
    return b;
  }
};

template <class L>
struct CodebookIq1S {
  using Block = BlockIQ1_S;
  using Shape = CodebookShape<2048, 8, 32, 8, Signs::none, Table<kLevelsOfIq1, 3>>;
  static Block encode(const Values& v, Effort effort) noexcept {
    float w[256];
    const CodebookFound<Shape> found =
        search_codebook<L, Shape>(kTableIq1S, large_weights_first<L>(v, LargeWeights::by_root, w), 0.125f, effort);
    Block b{};
    if (found.is_zero()) return b;
    b.d = L::half_bits(found.choice.unit * 8);
    for (int group = 0; group < 8; ++group) {
      int word = ((found.choice.lane[group] & 7) << 12) | (found.choice.lane[group] < 8 ? 0 : 0x8000);
      for (int i = 0; i < 4; ++i) {
        const int row = found.rows.row[4 * group + i];
        b.q[4 * group + i] = static_cast<uint8_t>(row & 255);
        word |= (row >> 8) << (3 * i);
      }
      b.words[group] = static_cast<uint16_t>(word);
    }
    return b;
  }
};

}  // namespace assay::quant::encode
