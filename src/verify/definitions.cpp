// Sources: the layout comments of ggml's block structures, the Python package `gguf` (quants.py),
// OCP Microscaling Formats v1.0 for MXFP4.
#include "verify/definitions.h"

#include <cmath>
#include <limits>

#include "quant/codebooks.h"

namespace assay::verify {
namespace {

using tensor::DType;

// The bytes of a block as one long little-endian number, from which fields of bits are cut.
class Bits {
 public:
  explicit Bits(const std::byte* bytes) : bytes_(bytes) {}

  uint32_t at(int64_t byte, int first,
              int n) const noexcept {  // n <= 25 bits from bit `first` counted from that byte on
    byte += first / 8;
    const int shift = first % 8;
    uint32_t word = 0;
    for (int i = 0; 8 * i < shift + n; ++i) word |= std::to_integer<uint32_t>(bytes_[byte + i]) << (8 * i);
    return (word >> shift) & ((uint32_t{1} << n) - 1);
  }
  int whole(int64_t byte) const noexcept { return static_cast<int>(at(byte, 0, 8)); }
  int whole_signed(int64_t byte) const noexcept { return whole(byte) - (whole(byte) >= 128 ? 256 : 0); }

  double half(int64_t byte) const noexcept { return floating(at(byte, 0, 16), 5, 10); }
  double bfloat(int64_t byte) const noexcept { return floating(at(byte, 0, 16), 8, 7); }
  double single(int64_t byte) const noexcept { return floating(at(byte, 0, 16) | (at(byte, 16, 16) << 16), 8, 23); }

 private:
  // IEEE 754 interchange formats: sign, biased exponent, fraction.
  static double floating(uint32_t bits, int exponent_bits, int fraction_bits) noexcept {
    const int top = (1 << exponent_bits) - 1, bias = top / 2;
    const int exponent = static_cast<int>(bits >> fraction_bits) & top;
    const auto fraction = static_cast<double>(bits & ((uint32_t{1} << fraction_bits) - 1));
    const double sign = ((bits >> (exponent_bits + fraction_bits)) & 1) != 0 ? -1.0 : 1.0;
    if (exponent == top)
      return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp(fraction + std::ldexp(1.0, fraction_bits), exponent - bias - fraction_bits);
  }

  const std::byte* bytes_;
};

// 32 nibbles in 16 bytes: the low halves first, then the high halves.
int nibble_of_32(const Bits& b, int64_t byte, int64_t j) {
  return static_cast<int>(b.at(byte + j % 16, j < 16 ? 0 : 4, 4));
}

// 2 bits each: every 32 bytes hold 128 elements as four layers of 32.
int crumb_of_256(const Bits& b, int64_t byte, int64_t j) {
  return static_cast<int>(b.at(byte + 32 * (j / 128) + j % 32, static_cast<int>(2 * (j % 128 / 32)), 2));
}

double q5(const Bits& b, int64_t j, int64_t mask, int64_t nibbles) {
  return nibble_of_32(b, nibbles, j) + 16.0 * b.at(mask, static_cast<int>(j), 1);
}

// The 6-bit scale and minimum of sub-block i in the 12 bytes at 4 of Q4_K and Q5_K.
double k_scale(const Bits& b, int64_t i) {
  return i < 4 ? b.at(4 + i, 0, 6) : b.at(8 + i, 0, 4) + 16.0 * b.at(i, 6, 2);
}
double k_minimum(const Bits& b, int64_t i) {
  return i < 4 ? b.at(8 + i, 0, 6) : b.at(8 + i, 4, 4) + 16.0 * b.at(4 + i, 6, 2);
}

double q2_k(const Bits& b, int64_t j) {
  return b.half(80) * b.at(j / 16, 0, 4) * crumb_of_256(b, 16, j) - b.half(82) * b.at(j / 16, 4, 4);
}

double q3_k(const Bits& b, int64_t j) {
  const int64_t group = j / 16;
  const double scale = b.at(96 + group % 8, group < 8 ? 0 : 4, 4) +
                       16.0 * b.at(104 + group % 4, static_cast<int>(2 * (group / 4)), 2) - 32;
  const double level = crumb_of_256(b, 32, j) + 4.0 * b.at(j % 32, static_cast<int>(j / 32), 1) - 4;
  return b.half(108) * scale * level;
}

double q4_or_5_k(const Bits& b, int64_t j, bool has_fifth_bit) {
  const int64_t quarter = j / 64, nibbles = has_fifth_bit ? 48 : 16;
  double level = b.at(nibbles + 32 * quarter + j % 32, j % 64 < 32 ? 0 : 4, 4);
  if (has_fifth_bit) level += 16.0 * b.at(16 + j % 32, static_cast<int>(j / 32), 1);
  return b.half(0) * k_scale(b, j / 32) * level - b.half(2) * k_minimum(b, j / 32);
}

double q6_k(const Bits& b, int64_t j) {
  const int64_t half = j / 128, i = j % 128;
  const double low = b.at(64 * half + i % 64, i < 64 ? 0 : 4, 4);
  const double high = b.at(128 + 32 * half + i % 32, static_cast<int>(2 * (i / 32)), 2);
  return b.half(208) * b.whole_signed(192 + j / 16) * (low + 16 * high - 32);
}

// Seven sign bits are stored for eight elements; the eighth makes their number even.
bool negative_by_seven(uint32_t seven, int64_t element) {
  if (element < 7) return ((seven >> element) & 1) != 0;
  int n = 0;
  for (int i = 0; i < 7; ++i) n += static_cast<int>((seven >> i) & 1);
  return n % 2 != 0;
}

template <class Row>
int codebook(Row row, int64_t element) {
  return static_cast<int>((row >> (8 * element)) & 255);
}

double iq2_xxs(const Bits& b, int64_t j) {
  const int64_t word = 2 + 8 * (j / 32), part = j % 32 / 8;
  const double level = codebook(quant::kGridIq2Xxs[b.whole(word + part)], j % 8);
  const bool negative = negative_by_seven(b.at(word + 4, static_cast<int>(7 * part), 7), j % 8);
  return b.half(0) * (0.5 + b.at(word + 7, 4, 4)) * 0.25 * (negative ? -level : level);
}

double iq2_xs(const Bits& b, int64_t j) {
  const int64_t word = 2 + 2 * (j / 8), group = j / 16;
  const double level = codebook(quant::kGridIq2Xs[b.at(word, 0, 9)], j % 8);
  const bool negative = negative_by_seven(b.at(word, 9, 7), j % 8);
  return b.half(0) * (0.5 + b.at(66 + group / 2, group % 2 == 0 ? 0 : 4, 4)) * 0.25 * (negative ? -level : level);
}

double iq2_s(const Bits& b, int64_t j) {
  const int64_t part = j / 8, group = j / 16;
  const uint32_t row = b.at(2 + part, 0, 8) + 256 * b.at(66 + part / 4, static_cast<int>(2 * (part % 4)), 2);
  const double level = codebook(quant::kGridIq2S[row], j % 8);
  const bool negative = b.at(34 + part, static_cast<int>(j % 8), 1) != 0;
  return b.half(0) * (0.5 + b.at(74 + group / 2, group % 2 == 0 ? 0 : 4, 4)) * 0.25 * (negative ? -level : level);
}

double iq3_xxs(const Bits& b, int64_t j) {
  const int64_t word = 66 + 4 * (j / 32);
  const double level = codebook(quant::kGridIq3Xxs[b.whole(2 + j / 4)], j % 4);
  const bool negative = negative_by_seven(b.at(word, static_cast<int>(7 * (j % 32 / 8)), 7), j % 8);
  return b.half(0) * (0.5 + b.at(word + 3, 4, 4)) * 0.5 * (negative ? -level : level);
}

double iq3_s(const Bits& b, int64_t j) {
  const int64_t part = j / 4;
  const uint32_t row = b.at(2 + part, 0, 8) + 256 * b.at(66 + part / 8, static_cast<int>(part % 8), 1);
  const double level = codebook(quant::kGridIq3S[row], j % 4);
  const bool negative = b.at(74 + j / 8, static_cast<int>(j % 8), 1) != 0;
  return b.half(0) * (1 + 2.0 * b.at(106 + j / 64, j % 64 < 32 ? 0 : 4, 4)) * (negative ? -level : level);
}

double iq1_s(const Bits& b, int64_t j) {
  const int64_t word = 34 + 2 * (j / 32), part = j % 32 / 8;
  const uint32_t row = b.at(2 + j / 8, 0, 8) + 256 * b.at(word, static_cast<int>(3 * part), 3);
  const int byte = codebook(quant::kGridIq1S[row], j % 8);
  const double level = byte >= 128 ? byte - 256 : byte;
  const double delta = b.at(word, 15, 1) != 0 ? -0.125 : 0.125;
  return b.half(0) * (2.0 * b.at(word, 12, 3) + 1) * (level + delta);
}

double iq4_level(int index) {
  static constexpr double kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kLevels[index];
}

double iq4_xs(const Bits& b, int64_t j) {
  const int64_t i = j / 32;
  const double scale = b.at(4 + i / 2, i % 2 == 0 ? 0 : 4, 4) + 16.0 * b.at(2, static_cast<int>(2 * i), 2) - 32;
  return b.half(0) * scale * iq4_level(nibble_of_32(b, 8 + 16 * i, j % 32));
}

// Five ternary digits a byte, which is the fraction 0.ddddd in base 3, of 256, rounded up.
double tq1_0(const Bits& b, int64_t j) {
  int64_t byte = 0, digit = 0;
  if (j < 160) {
    byte = j % 32;
    digit = j / 32;
  } else if (j < 240) {
    byte = 32 + (j - 160) % 16;
    digit = (j - 160) / 16;
  } else {
    byte = 48 + (j - 240) % 4;
    digit = (j - 240) / 4;
  }
  int scaled = b.whole(byte);
  for (int64_t i = 0; i <= digit; ++i) scaled *= 3;
  return b.half(52) * (scaled / 256 % 3 - 1);
}

// A float of sign, 2 bits of exponent with bias 1 and 1 bit of fraction; the scale is 2^(byte -
// 127). The code of -0 is 0 to every reader.
double mxfp4(const Bits& b, int64_t j) {
  const int bits = nibble_of_32(b, 1, j);
  const int exponent = (bits >> 1) & 3, fraction = bits & 1;
  const double magnitude = exponent == 0 ? 0.5 * fraction : std::ldexp(1 + 0.5 * fraction, exponent - 1);
  return std::ldexp((bits & 8) != 0 && magnitude != 0 ? -magnitude : magnitude, b.whole(0) - 127);
}

// Byte offsets of the half-precision scales; -1: none.
struct Halves {
  int first = -1, second = -1;
};
Halves halves_of(DType dtype) {
  switch (dtype) {
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K: return {0, 2};
    case DType::Q2_K: return {80, 82};
    case DType::Q3_K: return {108, -1};
    case DType::Q6_K: return {208, -1};
    case DType::TQ1_0: return {52, -1};
    case DType::TQ2_0: return {64, -1};
    case DType::MXFP4: return {};
    default: return {0, -1};
  }
}

}  // namespace

bool has_definition(DType dtype) noexcept {
  switch (dtype) {
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
    case DType::F64: return false;
    default: return true;
  }
}

double defined_value(DType dtype, const std::byte* block, int64_t j) noexcept {
  const Bits b(block);
  switch (dtype) {
    case DType::F32: return b.single(0);
    case DType::F16: return b.half(0);
    case DType::BF16: return b.bfloat(0);
    case DType::Q4_0: return b.half(0) * (nibble_of_32(b, 2, j) - 8);
    case DType::Q4_1: return b.half(0) * nibble_of_32(b, 4, j) + b.half(2);
    case DType::Q5_0: return b.half(0) * (q5(b, j, 2, 6) - 16);
    case DType::Q5_1: return b.half(0) * q5(b, j, 4, 8) + b.half(2);
    case DType::Q8_0: return b.half(0) * b.whole_signed(2 + j);
    case DType::Q2_K: return q2_k(b, j);
    case DType::Q3_K: return q3_k(b, j);
    case DType::Q4_K: return q4_or_5_k(b, j, false);
    case DType::Q5_K: return q4_or_5_k(b, j, true);
    case DType::Q6_K: return q6_k(b, j);
    case DType::IQ2_XXS: return iq2_xxs(b, j);
    case DType::IQ2_XS: return iq2_xs(b, j);
    case DType::IQ2_S: return iq2_s(b, j);
    case DType::IQ3_XXS: return iq3_xxs(b, j);
    case DType::IQ3_S: return iq3_s(b, j);
    case DType::IQ1_S: return iq1_s(b, j);
    case DType::IQ4_NL: return b.half(0) * iq4_level(nibble_of_32(b, 2, j));
    case DType::IQ4_XS: return iq4_xs(b, j);
    case DType::TQ1_0: return tq1_0(b, j);
    case DType::TQ2_0: return b.half(64) * (crumb_of_256(b, 0, j) - 1);
    case DType::MXFP4: return mxfp4(b, j);
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
    case DType::F64: break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

bool scales_are_finite(DType dtype, const std::byte* block) noexcept {
  const Bits b(block);
  if (dtype == DType::F32) return std::isfinite(b.single(0));
  if (dtype == DType::BF16) return std::isfinite(b.bfloat(0));
  const Halves halves = halves_of(dtype);
  return (halves.first < 0 || std::isfinite(b.half(halves.first))) &&
         (halves.second < 0 || std::isfinite(b.half(halves.second)));
}

}  // namespace assay::verify
