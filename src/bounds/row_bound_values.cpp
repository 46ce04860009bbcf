// See row_bound.h: ops of single elements.
#include <algorithm>
#include <cmath>

#include "bounds/row_bound.h"
#include "num/math64.h"
#include "ops/plan/float64.h"

namespace assay::bounds {
namespace {

// y = x * factor, the factor rounded once more.
void scaled(const RowScope& s, int64_t i, double factor, Out out) {
  const Row x = row_of(s.in.a, i);
  for (size_t j = 0; j < out.y.size(); ++j) {
    out.y[j] = x.values[j] * factor;
    const double moved = std::fabs(factor) * x.e(j);
    out.bound[j] = moved + gamma(2, s.u) * (std::fabs(out.y[j]) + moved) + s.tiny;
  }
}

}  // namespace

// y_a = fma(x_a, cos, -(x_b sin)): cos and sin are rounded, then the product, then the sum:
// gamma(3) of both products. Our tables are made in double. Others may make angles in f32:
// trace/dump.h says how far they are off then.
void bound_row(const RowScope& s, const ops::Rope& op, int64_t i, Out out) {
  const ops::RopeSpec& spec = s.in.plan.ropes[at(op.rope)];
  const Row x = row_of(s.in.a, i);
  const double position = s.in.positions[at(i)];
  ops::rotate64(spec, position, op.n_heads, op.head_dim, x.values, out.y);
  for (size_t j = 0; j < out.y.size(); ++j) out.bound[j] = x.e(j) + s.tiny;  // what passes through
  const int64_t half = spec.dim / 2;
  for (int64_t pair = 0; pair < half; ++pair) {
    const double angle = position * spec.inverse_frequency[at(pair)];
    const double cos = std::fabs(num::cos64(angle) * spec.magnitude),
                 sin = std::fabs(num::sin64(angle) * spec.magnitude);
    const double u_angle = s.declared.rope_angle_f32 ? std::max(s.u, 0x1p-24) : 4 * kUnitDouble;
    const double n_angle = s.declared.own_sums ? 0 : 2.0 * static_cast<double>(pair) + 3;
    const double turned = std::min(2.0, n_angle * u_angle * angle) * std::fabs(spec.magnitude);
    const double rounding = gamma(s.declared.own_sums ? 3 : 8, s.u);
    for (int64_t head = 0; head < op.n_heads; ++head) {
      const size_t a = at(head * op.head_dim + (spec.interleaved ? 2 * pair : pair));
      const size_t b = at(head * op.head_dim + (spec.interleaved ? 2 * pair + 1 : pair + half));
      const double x_a = std::fabs(x.values[a]) + x.e(a), x_b = std::fabs(x.values[b]) + x.e(b);
      const double by_angle = turned * std::hypot(x_a, x_b);
      out.bound[a] = cos * x.e(a) + sin * x.e(b) + rounding * (x_a * cos + x_b * sin) + by_angle + s.tiny;
      out.bound[b] = sin * x.e(a) + cos * x.e(b) + rounding * (x_a * sin + x_b * cos) + by_angle + s.tiny;
    }
  }
}

void bound_row(const RowScope& s, const ops::Add&, int64_t i, Out out) {
  const Row a = row_of(s.in.a, i), b = row_of(s.in.b, i);
  for (size_t j = 0; j < out.y.size(); ++j) {
    out.y[j] = a.values[j] + b.values[j];
    out.bound[j] = s.u * std::fabs(out.y[j]) + (1 + s.u) * (a.e(j) + b.e(j)) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::Gate& op, int64_t i, Out out) {
  const Row gate = row_of(s.in.a, i), up = row_of(s.in.b, i);
  const size_t run = out.y.size() / gate.values.size();
  for (size_t j = 0; j < out.y.size(); ++j) {
    const ActivationBound act = activation_bound(s, op.activation, gate.values[j / run], gate.e(j / run));
    const double u = std::fabs(up.values[j]) + up.e(j);
    out.y[j] = act.y * up.values[j];
    const double moved = act.error * u + std::fabs(act.y) * up.e(j);
    out.bound[j] = moved + s.u * (std::fabs(out.y[j]) + moved) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::Scale& op, int64_t i, Out out) { scaled(s, i, op.factor, out); }

void bound_row(const RowScope& s, const ops::ScaleColumns&, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  const size_t n = out.y.size() / s.weights.size();
  for (size_t j = 0; j < out.y.size(); ++j) {
    const double w = s.weights[j / n], moved = std::fabs(w) * x.e(j);
    out.y[j] = w * x.values[j];
    out.bound[j] = moved + gamma(2, s.u) * (std::fabs(out.y[j]) + moved) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::AddColumns&, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  for (size_t j = 0; j < out.y.size(); ++j) {
    out.y[j] = x.values[j] + s.weights[j];
    out.bound[j] = s.u * std::fabs(out.y[j]) + (1 + s.u) * x.e(j) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::ScaleByPosition& op, int64_t i, Out out) {
  scaled(s, i, ops::position_scale(op.beta, op.period, op.offset, s.in.positions[at(i)]), out);
}

// x / cap, tanh good to 3 u and the product: cap tanh moves no further than x, nor by more than its own relative error.
void bound_row(const RowScope& s, const ops::Softcap& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  for (size_t j = 0; j < out.y.size(); ++j) {
    out.y[j] = op.cap * num::tanh64(x.values[j] / op.cap);
    out.bound[j] = x.e(j) + gamma(10, s.u) * (std::fabs(out.y[j]) + x.e(j)) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::Clamp& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  for (size_t j = 0; j < out.y.size(); ++j) {
    out.y[j] = std::clamp(x.values[j], -op.limit, op.limit);
    out.bound[j] = x.e(j) + s.u * std::fabs(out.y[j]) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::Activate& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  for (size_t j = 0; j < out.y.size(); ++j) {
    const ActivationBound act = activation_bound(s, op.activation, x.values[j], x.e(j));
    out.y[j] = act.y;
    out.bound[j] = act.error + s.tiny;
  }
}

// Above 0 two products and a sum of numbers rounded once; below, e^m - 1 good to 6 u, and what cancels is bounded by
// its parts.
void bound_row(const RowScope& s, const ops::Xielu& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  for (size_t j = 0; j < out.y.size(); ++j) {
    const double v = x.values[j], dx = x.e(j), linear = std::fabs(op.beta * v);
    const double m = std::expm1(std::min(v, op.eps));
    const double a = std::fabs(op.a), b = std::fabs(op.b);
    out.y[j] = v > 0 ? op.a * v * v + op.beta * v : (m - v) * op.b + op.beta * v;
    const double magnitude = v > 0 ? a * v * v + linear : b * (std::fabs(m) + std::fabs(v)) + linear;
    const double moved = dx * (2 * a * (std::fabs(v) + dx) + b + std::fabs(op.beta));
    out.bound[j] = moved + gamma(10, s.u) * (magnitude + moved) + s.tiny;
  }
}

// A chain of k products and sums; x and weights may be off.
void bound_row(const RowScope& s, const ops::ExpertSum& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i), routes = row_of(s.in.b, i);
  const size_t d = out.y.size();
  for (size_t j = 0; j < d; ++j) {
    double sum = 0, magnitude = 0, moved = 0;
    for (size_t k = 0; k < at(op.n_used); ++k) {
      const double w = op.weighted ? routes.values[k] : 1, dw = op.weighted ? routes.e(k) : 0,
                   value = x.values[k * d + j], dx = x.e(k * d + j);
      sum += w * value;
      magnitude += std::fabs(w * value);
      moved += std::fabs(w) * dx + dw * (std::fabs(value) + dx);
    }
    out.y[j] = sum;
    out.bound[j] = moved + gamma(static_cast<double>(op.n_used) + 1, s.u) * (magnitude + moved) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::ExpertScale&, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i), routes = row_of(s.in.b, i);
  const size_t d = x.values.size();
  for (size_t j = 0; j < out.y.size(); ++j) {
    const double w = routes.values[j / d], dw = routes.e(j / d), value = x.values[j % d], dx = x.e(j % d);
    out.y[j] = w * value;
    const double moved = std::fabs(w) * dx + dw * (std::fabs(value) + dx);
    out.bound[j] = moved + s.u * (std::fabs(out.y[j]) + moved) + s.tiny;
  }
}

// g sigmoid(alpha g): |slope| <= 1.1 for alpha about 1.7 as for 1, and alpha rounded moves the sigmoid by alpha g u / 4
// at most.
void bound_row(const RowScope& s, const ops::ClampedGate& op, int64_t i, Out out) {
  const Row gate = row_of(s.in.a, i), up = row_of(s.in.b, i);
  for (size_t j = 0; j < out.y.size(); ++j) {
    const double g = std::min(gate.values[j], op.limit), u = std::clamp(up.values[j], -op.limit, op.limit) + 1;
    const double a = op.alpha * g, sigma = ops::sigmoid64(a), gated = g * sigma;
    const double of_gate = 1.2 * gate.e(j) + std::fabs(gated) * gamma(2 * (1 - sigma) + 4, s.u) +
                           std::fabs(g) * std::fabs(a) * sigma * (1 - sigma) * 3 * s.u + s.u * std::fabs(g);
    const double of_up = up.e(j) + s.u * (std::fabs(u) + op.limit);
    out.y[j] = gated * u;
    const double moved = of_gate * (std::fabs(u) + of_up) + std::fabs(gated) * of_up;
    out.bound[j] = moved + gamma(2, s.u) * (std::fabs(out.y[j]) + moved) + s.tiny;
  }
}

}  // namespace assay::bounds
