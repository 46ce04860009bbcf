// See xielu.h.
#include "ops/rows/xielu.h"

#include <cmath>

#include "num/math.h"
#include "num/math64.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

float expm1_ref(float m) noexcept {
  if (m < -0.5f || m > 0.5f) return num::exp(m) - 1.0f;
  float p = 1.0f / 362880.0f;
  for (const float c :
       {1.0f / 40320.0f, 1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 1.0f / 2.0f})
    p = num::fma(p, m, c);
  return num::fma(m * m, p, m);
}

double expm1_64(double m) noexcept {
  if (std::fabs(m) > 0.5) return num::exp64(m) - 1.0;
  double p = 0, n = 1;
  for (int i = 18; i > 0; --i) p = (p + n) * m / i;  // Horner of m^i / i!
  return p;
}

}  // namespace

void Xielu::check(const CheckScope& s) const {
  s.expect(s.width(y), s.width(x), "columns");
  if (!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(beta) || !std::isfinite(eps))
    s.refuse("an xIELU whose numbers are none");
}

void Xielu::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.ranges(x);
  Xielu part = *this;
  part.x = s.own(x), part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork Xielu::work(const WorkScope&) const { return {}; }

void Xielu::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const auto fa = static_cast<float>(a), fb = static_cast<float>(b), fbeta = static_cast<float>(beta),
             feps = static_cast<float>(eps);
  const float* from = rows.row(x, begin);
  float* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) {
    const float v = from[i];
    to[i] = v > 0.0f ? num::fma(fa * v, v, fbeta * v) : num::fma(expm1_ref(v > feps ? feps : v) - v, fb, fbeta * v);
  }
}

void Xielu::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const double* from = rows.row(x, begin);
  double* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) {
    const double v = from[i];
    to[i] = v > 0 ? a * v * v + beta * v : (expm1_64(v > eps ? eps : v) - v) * b + beta * v;
  }
}

}  // namespace assay::ops
