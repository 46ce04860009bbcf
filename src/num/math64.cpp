// Polynomials are Taylor's: over these reduced ranges their remainder is far below half an ulp, and each coefficient
// can be checked by eye.
#include "num/math64.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace assay::num {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRoundMagic = 0x1.8p52;
constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr double kLn2High = 0x1.62e42fefa38p-1;  // 42 bits: n * kLn2High is exact
constexpr double kLn2Low = 0x1.ef35793c7673p-45;

constexpr double kInverseFactorials[] = {
    1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,        1.0 / 5040,       1.0 / 40320,
    1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200};

// An unevaluated sum, |low| <= ulp(high) / 2.
struct Pair {
  double high, low;
};

Pair two_sum(double a, double b) noexcept {  // exact
  const double sum = a + b;
  const double part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

// c[0] + z (c[1] + z (...)).
template <size_t N>
double horner(const double (&c)[N], double z) noexcept {
  double sum = c[N - 1];
  for (size_t i = N - 1; i-- > 0;) sum = std::fma(sum, z, c[i]);
  return sum;
}

double power_of_two(int64_t n) noexcept { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }

// e^(x + low), |low| far below |x| or both small.
double exp_sum(double x, double low) noexcept {
  if (x != x) return x;
  if (x > 710) return kInfinity;
  if (x < -746) return 0;
  // Sampling takes this of a whole vocabulary, so it does without fma, which is a call on machines that lack the
  // instruction.
  const double n = (x * kLog2E + kRoundMagic) - kRoundMagic;
  const double high = x - n * kLn2High;  // exact
  const double rest = low - n * kLn2Low;
  const double r = high + rest;
  const double r_low = (high - r) + rest;
  double sum = kInverseFactorials[12];
  for (size_t i = 12; i-- > 0;) sum = sum * r + kInverseFactorials[i];
  const double tail = (r * r) * sum + r_low;
  const Pair whole = two_sum(1.0, r);
  const double p = whole.high + (whole.low + tail);
  const auto count = static_cast<int64_t>(n);
  const int64_t half = count >> 1;
  return (p * power_of_two(half)) * power_of_two(count - half);
}

// exp_sum(x - minus, 0) in every lane: the same operations in the same order, and none of them is fused. Wide: doubles,
// Narrow: as many floats.
template <class Wide, class Narrow, class Bits>
[[gnu::always_inline]] inline size_t exp_lanes(const float* x, double minus, double* y, size_t n) noexcept {
  constexpr size_t kLanes = sizeof(Wide) / sizeof(double);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Narrow narrow;
    std::memcpy(&narrow, x + i, sizeof narrow);
    const Wide d = __builtin_convertvector(narrow, Wide) - minus;
    const Wide shifted = d * kLog2E + kRoundMagic;
    const Wide whole_part = shifted - kRoundMagic;
    const Wide high = d - whole_part * kLn2High;
    const Wide rest = 0.0 - whole_part * kLn2Low;
    const Wide r = high + rest;
    const Wide r_low = (high - r) + rest;
    Wide sum = r * kInverseFactorials[12] + kInverseFactorials[11];
    for (size_t k = 11; k-- > 0;) sum = sum * r + kInverseFactorials[k];
    const Wide tail = (r * r) * sum + r_low;
    const Wide one_plus = 1.0 + r, part = one_plus - 1.0;
    const Wide low = (1.0 - (one_plus - part)) + (r - part);
    const Wide p = one_plus + (low + tail);
    constexpr uint64_t kBias = 4096;  // makes the count positive, so that any shift halves it
    const Bits count = reinterpret_cast<Bits>(shifted) - std::bit_cast<uint64_t>(kRoundMagic) + kBias;
    const Bits half = count >> 1;
    const Wide power = reinterpret_cast<Wide>((half + (1023 - kBias / 2)) << 52),
               other = reinterpret_cast<Wide>((count - half + (1023 - kBias / 2)) << 52);
    const Bits result = reinterpret_cast<Bits>((p * power) * other);
    const Bits too_small = reinterpret_cast<Bits>(d < -746.0), too_large = reinterpret_cast<Bits>(d > 710.0);
    const Bits infinite = too_large & std::bit_cast<uint64_t>(kInfinity);
    const Bits y_bits = (result & ~(too_small | too_large)) | infinite;
    std::memcpy(y + i, &y_bits, sizeof y_bits);
  }
  return i;
}

template <class T, size_t kLanes>
struct Vector {
  typedef T Type __attribute__((vector_size(kLanes * sizeof(T))));
};
template <size_t kLanes>
[[gnu::always_inline]] inline size_t exp_lanes(const float* x, double minus, double* y, size_t n) noexcept {
  return exp_lanes<typename Vector<double, kLanes>::Type, typename Vector<float, kLanes>::Type,
                   typename Vector<uint64_t, kLanes>::Type>(x, minus, y, n);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] size_t exp_4(const float* x, double minus, double* y, size_t n) noexcept {
  return exp_lanes<4>(x, minus, y, n);
}
[[gnu::target("avx512f")]] size_t exp_8(const float* x, double minus, double* y, size_t n) noexcept {
  return exp_lanes<8>(x, minus, y, n);
}

size_t exp_many(const float* x, double minus, double* y, size_t n) noexcept {
  if (__builtin_cpu_supports("avx512f")) return exp_8(x, minus, y, n);
  if (__builtin_cpu_supports("avx2")) return exp_4(x, minus, y, n);
  return exp_lanes<2>(x, minus, y, n);
}
#else
size_t exp_many(const float* x, double minus, double* y, size_t n) noexcept { return exp_lanes<2>(x, minus, y, n); }
#endif

// ln x as a sum good to about 2^-62 relative, for positive finite x: x = 2^k m, m in [sqrt(1/2), sqrt(2)),
// ln m = 2 atanh(s) = 2 (s + s^3 / 3 + ...), s = f / (2 + f), f = m - 1.
Pair log_pair(double x) noexcept {
  int64_t k = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    k = -54;
  }
  uint64_t bits = std::bit_cast<uint64_t>(x);
  k += static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++k;
  }
  const double f = m - 1;  // exact
  const Pair divisor = two_sum(2.0, f);
  const double s = f / divisor.high;
  const double s_low = (std::fma(-s, divisor.high, f) - s * divisor.low) / divisor.high;
  constexpr double kOddInverses[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                                     2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23, 2.0 / 25};
  const double z = s * s;
  const double series = s * z * horner(kOddInverses, z);
  const auto n = static_cast<double>(k);
  const Pair a = two_sum(n * kLn2High, 2 * s);  // n * kLn2High is exact
  const Pair b = two_sum(a.high, series);
  const double low = ((a.low + b.low) + 2 * s_low) + n * kLn2Low;
  const double high = b.high + low;
  return {high, (b.high - high) + low};
}

// x minus the nearest multiple of pi / 2, as a sum; quadrant = that multiple mod 4. The first step is exact: x and n *
// kHalfPi1 are multiples of 2^-52 or finer than the difference needs.
struct Reduced {
  double r, r_low;
  unsigned quadrant;
};
Reduced reduce(double x) noexcept {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPi1 = 0x1.921fb54442d18p+0, kHalfPi2 = 0x1.1a62633145c07p-54,
                   kHalfPi3 = -0x1.f1976b7ed8fbcp-110;
  const double n = std::fma(x, kTwoOverPi, kRoundMagic) - kRoundMagic;
  const double first = std::fma(n, -kHalfPi1, x);
  const double second = n * kHalfPi2;
  const double second_low = std::fma(n, kHalfPi2, -second);  // exact
  const Pair difference = two_sum(first, -second);
  const double r = difference.high;
  const double r_low = (difference.low - second_low) - n * kHalfPi3;
  return {r, r_low, static_cast<unsigned>(static_cast<int64_t>(n)) & 3u};
}

double sin_small(double r, double r_low) noexcept {
  constexpr double kTerms[] = {-1.0 / 6,
                               1.0 / 120,
                               -1.0 / 5040,
                               1.0 / 362880,
                               -1.0 / 39916800,
                               1.0 / 6227020800,
                               -1.0 / 1307674368000,
                               1.0 / 355687428096000,
                               -1.0 / 121645100408832000};
  const double z = r * r;
  return r + std::fma(r * z, horner(kTerms, z), r_low * std::fma(-0.5, z, 1.0));
}

double cos_small(double r, double r_low) noexcept {
  constexpr double kTerms[] = {1.0 / 24,
                               -1.0 / 720,
                               1.0 / 40320,
                               -1.0 / 3628800,
                               1.0 / 479001600,
                               -1.0 / 87178291200,
                               1.0 / 20922789888000,
                               -1.0 / 6402373705728000,
                               1.0 / 2432902008176640000};
  const double z = r * r;
  const double half = 0.5 * z;
  const double head = 1.0 - half;
  const double head_low = (1.0 - head) - half;  // exact
  return head + (head_low + std::fma(z * z, horner(kTerms, z), -r * r_low));
}

constexpr double kAngleMax = 0x1p31;

// sin(x + quarter_turns * pi / 2)
double sin_turned(double x, unsigned quarter_turns) noexcept {
  if (!(std::fabs(x) <= kAngleMax)) return kNaN;
  const Reduced a = reduce(x);
  const unsigned quadrant = (a.quadrant + quarter_turns) & 3u;
  const double value = (quadrant & 1u) != 0 ? cos_small(a.r, a.r_low) : sin_small(a.r, a.r_low);
  return (quadrant & 2u) != 0 ? -value : value;
}

}  // namespace

double exp64(double x) noexcept { return exp_sum(x, 0); }

void exp64_less(std::span<const float> x, double minus, std::span<double> y) noexcept {
  for (size_t i = exp_many(x.data(), minus, y.data(), x.size()); i < x.size(); ++i)
    y[i] = exp64(static_cast<double>(x[i]) - minus);
}

double log64(double x) noexcept {
  if (x != x || x < 0) return kNaN;
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return kInfinity;
  return log_pair(x).high;
}

double pow64(double x, double y) noexcept {
  if (y == 0) return 1;
  if (!(x > 0) || x == kInfinity || !(std::fabs(y) < kInfinity)) return kNaN;
  const Pair log = log_pair(x);
  const double high = y * log.high;
  if (std::fabs(high) > 800) return exp64(high);
  return exp_sum(high, std::fma(y, log.high, -high) + y * log.low);
}

double sin64(double x) noexcept { return x == 0 ? x : sin_turned(x, 0); }
double cos64(double x) noexcept { return sin_turned(x, 1); }

double tanh64(double x) noexcept {
  const double a = std::fabs(x);
  double magnitude = 0;
  if (a < 0.5) {  // sinh by its series; cosh^2 = 1 + sinh^2
    constexpr double kTerms[] = {1.0 / 6,        1.0 / 120,        1.0 / 5040,          1.0 / 362880,
                                 1.0 / 39916800, 1.0 / 6227020800, 1.0 / 1307674368000, 1.0 / 355687428096000};
    const double z = a * a;
    const double sinh = std::fma(a * z, horner(kTerms, z), a);
    magnitude = sinh / std::sqrt(std::fma(sinh, sinh, 1.0));
  } else {
    magnitude = 1 - 2 / (exp64(a + a) + 1);
  }
  return std::copysign(magnitude, x);
}

}  // namespace assay::num
