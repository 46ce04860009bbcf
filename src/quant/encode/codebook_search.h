// The search of the codebook formats: IQ1_S, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S. A superblock of 256 has one unit
// u; a group of 16 or 32 a factor t = 1, 3, 5 ...; a part of 4 or 8 weights a row of the grid. Value = u t level, with
// signs that are stored beside the rows.
//
// At the scale g = u t row r leaves sum w (x - g level)^2 = sum w x^2 + g (g b - 2 a), a = sum w x level, b = sum w
// level^2: a line in g, whose two numbers do not depend on g. So:
//   1. A unit from each group alone, as if every level could be had.
//   2. For every part and each factor there is, the best of all rows ("lines" below: 16 a part). No others are looked
//   at until 5.
//   3. Units beside that one; every group's best factor at each; the best stays.
//   4. The unit by least squares to all that was chosen, and the factors again, while the error falls.
//   5. At the scales so found the best of all rows, and of all signs.
// Of equal errors the first candidate wins. Errors are told less sum w x^2, which no choice changes.
#pragma once

#include <limits>

#include "quant/encode/grid_tables.h"
#include "quant/encode/search.h"

namespace assay::quant::encode {

enum class Signs {
  free,    // a bit for each weight
  even_8,  // of each 8 weights an even number is negative; a part has 8
  even_4,  // the same; a part has 4
  none,    // the levels have signs themselves, and all of a group are shifted by 1 up or down
};

// A format to be searched: its grid, and how many weights share a factor. Levels: for step 1, what a row may hold.
template <int rows, int width, int sub, int factors, Signs signs, class L_>
struct CodebookShape {
  static constexpr int kRows = rows, kWidth = width, kSub = sub, kFactors = factors;
  static constexpr int kParts = 256 / width, kGroups = 256 / sub, kPartsOfGroup = sub / width;
  static constexpr Signs kSigns = signs;
  static constexpr bool kShifted = signs == Signs::none;
  using Levels = L_;
  using Table = GridTable<rows, width>;
};

// A superblock made ready: magnitudes and their signs (with Signs::none the weights as they are), and the errors'
// weights.
struct CodebookInput {
  float x[256], w[256], wx[256];
  uint8_t negative[32];  // bits of each 8 weights
  bool odd[32];          // where an even number is needed and this is none: one sign has to be wrong
  int flip[32];          // Signs::even_4: which, in steps 2 to 4
};

// Element of 8 whose wrong sign costs least at equal levels.
ASSAY_FN int cheapest_flip(const float* wx) noexcept {
  int at = 0;
  for (int j = 1; j < 8; ++j) at = wx[j] < wx[at] ? j : at;
  return at;
}

template <Signs signs>
ASSAY_FN CodebookInput codebook_input(const Values& v) noexcept {
  CodebookInput in{};
  for (int j = 0; j < 256; ++j) {
    const bool is_negative = signs != Signs::none && v.x[j] < 0;
    in.x[j] = is_negative ? -v.x[j] : v.x[j];
    in.w[j] = v.weight(j);
    in.wx[j] = in.w[j] * in.x[j];
    in.negative[j / 8] = static_cast<uint8_t>(in.negative[j / 8] | (is_negative ? 1 << (j % 8) : 0));
    in.odd[j / 8] = in.odd[j / 8] != is_negative;
  }
  for (int i = 0; i < 32; ++i) {
    if (signs != Signs::even_8 && signs != Signs::even_4) in.odd[i] = false;
    in.flip[i] = in.odd[i] ? cheapest_flip(in.wx + 8 * i) : -1;
  }
  return in;
}

// Twice a, and b, of sixteen rows. c: where levels are shifted, twice the sum of w level, by which b grows with the
// shift.
template <class L>
struct RowSums {
  L a2, b, c;
};

template <class L, class Shape>
RowSums<L> row_sums(const float (&level)[Shape::kWidth][16], const float* w, const float* wx, bool odd) noexcept {
  RowSums<L> s{L::splat(0), L::splat(0), L::splat(0)};
  L wrong = L::splat(std::numeric_limits<float>::max());
  for (int j = 0; j < Shape::kWidth; ++j) {
    const L row = L::load(level[j]), a = L::splat(wx[j]) * row, wl = L::splat(w[j]) * row;
    s.a2 = s.a2 + a;
    s.b = s.b + wl * row;
    if constexpr (Shape::kShifted) s.c = s.c + wl;
    if constexpr (Shape::kSigns == Signs::even_8) wrong = L::min(a, wrong);
  }
  s.a2 = s.a2 + s.a2;
  s.c = s.c + s.c;
  if (Shape::kSigns == Signs::even_8 && odd) s.a2 = s.a2 - (wrong + wrong) - (wrong + wrong);
  return s;
}

// Signs::even_4: products with the sign that is to be wrong.
template <class Shape>
ASSAY_FN void products_of_part(const CodebookInput& in, int part, float* wx) noexcept {
  for (int j = 0; j < Shape::kWidth; ++j) wx[j] = in.wx[part * Shape::kWidth + j];
  if (Shape::kSigns != Signs::even_4) return;
  const int flip = in.flip[part / 2] - 4 * (part % 2);
  if (flip >= 0 && flip < 4) wx[flip] = -wx[flip];
}

// The shift of a lane: up in the first eight, down in the others.
constexpr float kShifts[16] = {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};
constexpr float kFactorsOf16[16] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
constexpr float kFactorsOf8[16] = {1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15};

template <class L, class Shape>
L lane_factors() noexcept {
  return L::load(Shape::kFactors == 16 ? kFactorsOf16 : kFactorsOf8);
}

// Sixteen rows of a part, those that are best in step 2.
struct PartLines {
  float a2[16], b[16];
};

template <class L>
struct BestLine {
  L value, a2, b;
  void offer(const L& g, const L& of_a2, const L& of_b) noexcept {
    const L offered = g * of_b - of_a2;
    a2 = L::select_above(value, offered, of_a2, a2);
    b = L::select_above(value, offered, of_b, b);
    value = L::min(offered, value);
  }
  static BestLine none() noexcept {
    return {L::splat(std::numeric_limits<float>::infinity()), L::splat(0), L::splat(0)};
  }
};

// Step 2 for one part: the best of all rows at each lane's scale.
template <class L, class Shape>
PartLines lines_of_part(const typename Shape::Table& table, const CodebookInput& in, int part, const L& g) noexcept {
  float wx[Shape::kWidth], sum_w = 0;
  products_of_part<Shape>(in, part, wx);
  const float* w = in.w + part * Shape::kWidth;
  for (int j = 0; j < Shape::kWidth; ++j) sum_w += w[j];
  const bool odd = in.odd[part * Shape::kWidth / 8];
  const L shift = L::load(kShifts);
  BestLine<L> best = BestLine<L>::none();
  for (int block = 0; block < Shape::kRows / 16; ++block) {
    RowSums<L> s = row_sums<L, Shape>(table.level[block], w, wx, odd);
    if constexpr (Shape::kShifted) s.b = s.b + L::splat(sum_w);
    float a2[16], b[16], c[16];
    s.a2.store(a2);
    s.b.store(b);
    s.c.store(c);
    for (int k = 0; k < 16; ++k) {
      if constexpr (Shape::kShifted) {
        best.offer(g, L::splat(a2[k]), L::splat(b[k]) + shift * L::splat(c[k]));
      } else {
        best.offer(g, L::splat(a2[k]), L::splat(b[k]));
      }
    }
  }
  PartLines lines;
  best.a2.store(lines.a2);
  best.b.store(lines.b);
  return lines;
}

template <class L, class Shape>
void find_lines(const typename Shape::Table& table, const CodebookInput& in, float unit, PartLines* lines) noexcept {
  const L g = L::splat(unit) * lane_factors<L, Shape>();
  for (int part = 0; part < Shape::kParts; ++part) lines[part] = lines_of_part<L, Shape>(table, in, part, g);
}

// What was chosen for a superblock.
template <class Shape>
struct CodebookChoice {
  float unit = 0;
  int lane[Shape::kGroups] = {};  // of each group: factor, and shift
  float error = 0;
  float best_unit = 0;  // that fits best by least squares to what was chosen
};

// The best factor (and shift) of every group at a unit, over the lines.
template <class L, class Shape>
CodebookChoice<Shape> choose_factors(const CodebookInput& in, const PartLines* lines, float unit) noexcept {
  CodebookChoice<Shape> c;
  c.unit = unit;
  const L factors = lane_factors<L, Shape>(), g = L::splat(unit) * factors, shift = L::load(kShifts),
          zero = L::splat(0);
  float top = 0, bottom = 0;
  for (int group = 0; group < Shape::kGroups; ++group) {
    L value = zero, a2 = zero, b = zero;
    for (int i = 0; i < Shape::kPartsOfGroup; ++i) {
      const PartLines& of = lines[group * Shape::kPartsOfGroup + i];
      BestLine<L> best = BestLine<L>::none();
      if constexpr (Shape::kShifted) {
        for (int k = 0; k < 8; ++k) {
          best.offer(g, L::select_above(shift, zero, L::splat(of.a2[k]), L::splat(of.a2[k + 8])),
                     L::select_above(shift, zero, L::splat(of.b[k]), L::splat(of.b[k + 8])));
        }
      } else {
        for (int k = 0; k < 16; ++k) best.offer(g, L::splat(of.a2[k]), L::splat(of.b[k]));
      }
      value = value + best.value;
      a2 = a2 + best.a2;
      b = b + best.b;
    }
    if constexpr (Shape::kShifted) {
      float sum = 0;
      for (int j = 0; j < Shape::kSub; ++j) sum += in.wx[group * Shape::kSub + j];
      const L more = shift * L::splat(2 * sum);
      a2 = a2 + more;
      value = value - more;
    }
    const L errors = g * value;
    const int lane = errors.first_smallest();
    float e[16], t[16], of_a2[16], of_b[16];
    errors.store(e);
    factors.store(t);
    a2.store(of_a2);
    b.store(of_b);
    c.lane[group] = lane;
    c.error += e[lane];
    top += t[lane] * of_a2[lane];
    bottom += t[lane] * t[lane] * of_b[lane];
  }
  c.best_unit = bottom > 0 && top > 0 ? 0.5f * top / bottom : unit;
  return c;
}

constexpr float kFirstOfCodebook[16] = {0.70f, 0.75f, 0.80f, 0.85f, 0.90f, 0.95f, 1.0f,  1.05f,
                                        1.10f, 1.16f, 1.22f, 1.29f, 1.36f, 1.44f, 1.52f, 1.6f};

// Step 1: the unit with which the group of the largest scale has the largest factor.
template <class L, class Shape>
float first_unit(const CodebookInput& in) noexcept {
  float largest = 0;
  for (int group = 0; group < Shape::kGroups; ++group) {
    const Values part{in.x + group * Shape::kSub, in.w + group * Shape::kSub, Shape::kSub};
    const Ends ends = ends_of<L>(part.x, Shape::kSub);
    const float amax = -ends.low > ends.high ? -ends.low : ends.high;
    if (amax == 0) continue;
    const L scales = L::splat(amax / static_cast<float>(Shape::Levels::kHigh)) * L::load(kFirstOfCodebook);
    const float scale = best_of(scale_errors<L, typename Shape::Levels>(part, scales), scales).scale;
    largest = scale > largest ? scale : largest;
  }
  return largest / static_cast<float>(2 * Shape::kFactors - 1);
}

// Units tried beside the first, as shares of it.
constexpr float kUnits[8] = {1.0f, 0.94f, 0.88f, 0.81f, 1.06f, 1.13f, 0.74f, 0.67f};

// u as the file holds it: `held` times a half-precision number.
template <class L>
float unit_of_half(float unit, float held) noexcept {
  return half_of<L>(unit / held) * held;
}

template <class L, class Shape>
CodebookChoice<Shape> choose_codebook(const typename Shape::Table& table, const CodebookInput& in, float held,
                                      Effort effort) noexcept {
  const float first = unit_of_half<L>(first_unit<L, Shape>(in), held);
  if (first == 0) return {};
  PartLines lines[Shape::kParts];
  find_lines<L, Shape>(table, in, first, lines);
  CodebookChoice<Shape> best = choose_factors<L, Shape>(in, lines, first);
  const auto try_unit = [&](float unit) {
    const CodebookChoice<Shape> next = choose_factors<L, Shape>(in, lines, unit_of_half<L>(unit, held));
    const bool better = next.error < best.error;
    if (better) best = next;
    return better;
  };
  const int n_units = effort == Effort::fast ? 3 : 8;
  for (int i = 1; i < n_units; ++i) try_unit(first * kUnits[i]);
  const int rounds = effort == Effort::fast ? 1 : 4;
  for (int i = 0; i < rounds && try_unit(best.best_unit); ++i) {
  }
  if (effort != Effort::best) return best;
  for (int round = 0; round < 3; ++round) {  // all rows again, from where the search stands
    const float from = best.unit;
    find_lines<L, Shape>(table, in, from, lines);
    best = choose_factors<L, Shape>(in, lines, from);
    for (const float share : kUnits) try_unit(from * (1 + 0.25f * (share - 1)));
    for (int i = 0; i < 4 && try_unit(best.best_unit); ++i) {
    }
    if (best.unit == from) break;
  }
  return best;
}

struct FoundRow {
  float value = 0;
  int row = 0;
};

// Step 5 for one part: the best of all rows at one scale.
template <class L, class Shape>
FoundRow best_row(const typename Shape::Table& table, const float* w, const float* wx, bool odd, float scale,
                  float shift) noexcept {
  const L g = L::splat(scale), of_shift = L::splat(shift);
  L value = L::splat(std::numeric_limits<float>::infinity()), at = L::splat(0);
  for (int block = 0; block < Shape::kRows / 16; ++block) {
    RowSums<L> s = row_sums<L, Shape>(table.level[block], w, wx, odd);
    if constexpr (Shape::kShifted) s.b = s.b + of_shift * s.c;
    const L offered = g * s.b - s.a2;
    at = L::select_above(value, offered, L::splat(static_cast<float>(block)), at);
    value = L::min(offered, value);
  }
  float values[16], blocks[16];
  value.store(values);
  at.store(blocks);
  FoundRow found{values[0], 16 * static_cast<int>(blocks[0])};
  for (int k = 1; k < 16; ++k) {
    const int row = 16 * static_cast<int>(blocks[k]) + k;
    if (values[k] < found.value || (values[k] == found.value && row < found.row)) found = {values[k], row};
  }
  return found;
}

// Rows and signs of a whole superblock: rows[part], and bits of each 8 weights.
struct CodebookRows {
  int row[64];
  uint8_t signs[32];
};

// Signs::even_4, of two parts whose eight signs are to be made even: in each the best row with its own signs, and with
// the cheapest one wrong.
struct FoundPair {
  FoundRow right[2], wrong[2];
  int flip[2];
};

// find(part, wx): the best row of a part with these products.
template <class Find>
ASSAY_FN FoundPair find_pair_of_rows(const CodebookInput& in, int pair, const Find& find) noexcept {
  FoundPair found{};
  for (int i = 0; i < 2; ++i) {
    const int part = 2 * pair + i;
    float wx[4];
    for (int j = 0; j < 4; ++j) {
      wx[j] = in.wx[part * 4 + j];
      if (wx[j] < wx[found.flip[i]]) found.flip[i] = j;
    }
    found.right[i] = find(part, wx);
    wx[found.flip[i]] = -wx[found.flip[i]];
    found.wrong[i] = find(part, wx);
  }
  return found;
}

template <class L, class Shape>
CodebookRows rows_of_choice(const typename Shape::Table& table, const CodebookInput& in,
                            const CodebookChoice<Shape>& c) noexcept {
  constexpr int kWidth = Shape::kWidth;
  const L factors = lane_factors<L, Shape>();
  float t[16];
  factors.store(t);
  CodebookRows out{};
  for (int i = 0; i < 32; ++i) out.signs[i] = in.negative[i];
  const auto find = [&](int part, const float* wx) {
    const int lane = c.lane[part / Shape::kPartsOfGroup];
    return best_row<L, Shape>(table, in.w + part * kWidth, wx, in.odd[part * kWidth / 8], c.unit * t[lane],
                              kShifts[lane]);
  };
  for (int part = 0; part < Shape::kParts; ++part) {
    if (Shape::kSigns == Signs::even_4 && in.odd[part / 2]) continue;
    const int row = out.row[part] = find(part, in.wx + part * kWidth).row;
    if (Shape::kSigns != Signs::even_8 || !in.odd[part]) continue;
    float products[8];
    for (int j = 0; j < kWidth; ++j) products[j] = in.wx[part * kWidth + j] * table.level[row / 16][j][row % 16];
    out.signs[part] = static_cast<uint8_t>(out.signs[part] ^ (1 << cheapest_flip(products)));
  }
  if constexpr (Shape::kSigns == Signs::even_4) {  // the wrong sign is among the first four or the last
    for (int pair = 0; pair < 32; ++pair) {
      if (!in.odd[pair]) continue;
      const FoundPair f = find_pair_of_rows(in, pair, find);
      const int i = f.wrong[0].value + f.right[1].value <= f.right[0].value + f.wrong[1].value ? 0 : 1;
      out.row[2 * pair + i] = f.wrong[i].row;
      out.row[2 * pair + 1 - i] = f.right[1 - i].row;
      out.signs[pair] = static_cast<uint8_t>(out.signs[pair] ^ (1 << (4 * i + f.flip[i])));
    }
  }
  return out;
}

}  // namespace assay::quant::encode
