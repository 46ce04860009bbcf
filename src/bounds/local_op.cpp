// See local_op.h. The ops but Linear and Attention, which have files of their own.
#include "bounds/local_op.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "assay/error.h"
#include "base/index.h"
#include "num/math64.h"
#include "ops/rows/activate.h"
#include "ops/rows/activation.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
#include "ops/attention/attention.h"
#include "ops/state/causal_conv.h"
#include "ops/rows/clamp.h"
#include "ops/rows/clamped_gate.h"
#include "ops/state/delta_rule.h"
#include "ops/rows/embed.h"
#include "ops/rows/embed_position.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/plan/float64.h"
#include "ops/rows/gate.h"
#include "ops/linear/gather.h"
#include "ops/rows/join.h"
#include "ops/attention/kv_store.h"
#include "ops/rows/l2_norm.h"
#include "ops/rows/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/rows/match_magnitude.h"
#include "ops/rows/rms_norm.h"
#include "ops/attention/rope.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_by_position.h"
#include "ops/rows/scale_columns.h"
#include "ops/rows/select_outputs.h"
#include "ops/state/selective_scan.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "ops/linear/sparse_gate.h"
#include "ops/rows/xielu.h"
#include "quant/format.h"
#include "bounds/attention_bound.h"
#include "bounds/expert_bound.h"
#include "bounds/linear_bound.h"
#include "bounds/rounding.h"

namespace assay::verify {
namespace {

// Rows as one op sees them: error is zero where it was not given.
struct Row {
  std::span<const double> values, error;
  double e(size_t j) const { return error.empty() ? 0 : error[j]; }
};
Row row_of(const Rows& rows, int64_t i) {
  const size_t begin = at(i * rows.width), n = at(rows.width);
  return {rows.values.subspan(begin, n),
          rows.error.empty() ? rows.error : rows.error.subspan(begin, n)};
}

struct Out {
  std::span<double> y, bound;
};

class SmallOp {
 public:
  SmallOp(const OpInputs& in, const Declared& declared)
      : in_(in), declared_(declared), u_(unit(declared)), tiny_(tiny(declared)) {}

  // decode(row)_j * scale: scale rounded to float and the product; a format's own rounding where it
  // is decoded otherwise.
  void run(const ops::Embed& op, int64_t i, Out out) const {
    const tensor::TensorView& table = in_.plan.weights[at(op.table)].view;
    std::vector<float> decoded(out.y.size());
    quant::decode_row(*quant::find_format(table.dtype), table.row(in_.tokens[at(i)]),
                      static_cast<int64_t>(decoded.size()), decoded.data());
    const double n = (op.scale == 1.0 ? 0 : 2) + (declared_.own_sums ? 0 : 2);
    for (size_t j = 0; j < decoded.size(); ++j) {
      out.y[j] = static_cast<double>(decoded[j]) * op.scale;
      out.bound[j] = gamma(n, u_) * std::fabs(out.y[j]) + tiny_;
    }
  }

  // The sum of squares s carries n_s = ceil(d / 32) + 5 roundings (any order: d), all terms
  // positive; / d and + eps one each, the root halves them all; root, 1 / root and two products one
  // each: gamma(n_s / 2 + 5). An error dx moves s / d by at most (2 sum |x| dx + sum dx^2) / d.
  void run(const ops::RmsNorm& op, int64_t i, Out out) const {
    const std::vector<double>& w = norm_weights_;  // none: all 1
    const Row x = row_of(in_.a, i);
    const auto d = at(op.d);
    const double eps = static_cast<double>(op.eps), count = static_cast<double>(op.d);
    const double n_sum = declared_.own_sums ? std::ceil(count / 32) + 5 : count;
    for (size_t begin = 0; begin < x.values.size(); begin += d) {
      ops::rms_norm64(x.values.subspan(begin, d), w, eps, out.y.subspan(begin, d));
      double squares = 0, moved = 0;
      for (size_t j = begin; j < begin + d; ++j) {
        squares += x.values[j] * x.values[j];
        moved += x.e(j) * (2 * std::fabs(x.values[j]) + x.e(j));
      }
      const double mean = squares / count + eps, r = 1 / std::sqrt(mean);
      const double t = moved / count / mean;
      // r' = r / sqrt(1 +- t); it never exceeds 1 / sqrt(eps)
      const double off = moved == 0 ? 0
                         : t < 0.5  ? 1 / std::sqrt(1 - t) - 1
                                    : std::sqrt(mean / eps);
      const double rounding =
          gamma(n_sum / 2 + 6, u_) + gamma(count / 2 + 6, kUnitDouble) + count * 0x1p-149 / mean;
      for (size_t j = begin; j < begin + d; ++j) {
        const double from_x =
            (w.empty() ? 1.0 : std::fabs(w[j - begin])) * r * (x.e(j) * (1 + off) + std::fabs(x.values[j]) * off);
        out.bound[j] = from_x + rounding * (std::fabs(out.y[j]) + from_x) + tiny_;
      }
    }
  }

  // y_a = fma(x_a, cos, -(x_b sin)): cos and sin are rounded, then the product, then the sum:
  // gamma(3) of both products. Our tables are made in double. Others may make angles in f32:
  // trace/dump.h says how far they are off then.
  void run(const ops::Rope& op, int64_t i, Out out) const {
    const ops::RopeSpec& spec = in_.plan.ropes[at(op.rope)];
    const Row x = row_of(in_.a, i);
    const double position = in_.positions[at(i)];
    ops::rotate64(spec, position, op.n_heads, op.head_dim, x.values, out.y);
    for (size_t j = 0; j < out.y.size(); ++j) out.bound[j] = x.e(j) + tiny_;  // what passes through
    const int64_t half = spec.dim / 2;
    for (int64_t pair = 0; pair < half; ++pair) {
      const double angle = position * spec.inverse_frequency[at(pair)];
      const double cos = std::fabs(num::cos64(angle) * spec.magnitude),
                   sin = std::fabs(num::sin64(angle) * spec.magnitude);
      const double u_angle = declared_.rope_angle_f32 ? std::max(u_, 0x1p-24) : 4 * kUnitDouble;
      const double n_angle = declared_.own_sums ? 0 : 2.0 * static_cast<double>(pair) + 3;
      const double turned = std::min(2.0, n_angle * u_angle * angle) * std::fabs(spec.magnitude);
      const double rounding = gamma(declared_.own_sums ? 3 : 8, u_);
      for (int64_t head = 0; head < op.n_heads; ++head) {
        const size_t a = at(head * op.head_dim + (spec.interleaved ? 2 * pair : pair));
        const size_t b = at(head * op.head_dim + (spec.interleaved ? 2 * pair + 1 : pair + half));
        const double x_a = std::fabs(x.values[a]) + x.e(a), x_b = std::fabs(x.values[b]) + x.e(b);
        const double by_angle = turned * std::hypot(x_a, x_b);
        out.bound[a] =
            cos * x.e(a) + sin * x.e(b) + rounding * (x_a * cos + x_b * sin) + by_angle + tiny_;
        out.bound[b] =
            sin * x.e(a) + cos * x.e(b) + rounding * (x_a * sin + x_b * cos) + by_angle + tiny_;
      }
    }
  }

  void run(const ops::Add&, int64_t i, Out out) const {
    const Row a = row_of(in_.a, i), b = row_of(in_.b, i);
    for (size_t j = 0; j < out.y.size(); ++j) {
      out.y[j] = a.values[j] + b.values[j];
      out.bound[j] = u_ * std::fabs(out.y[j]) + (1 + u_) * (a.e(j) + b.e(j)) + tiny_;
    }
  }

  void run(const ops::Gate& op, int64_t i, Out out) const {
    const Row gate = row_of(in_.a, i), up = row_of(in_.b, i);
    const size_t run = out.y.size() / gate.values.size();
    for (size_t j = 0; j < out.y.size(); ++j) {
      const Activation act = activate(op.activation, gate.values[j / run], gate.e(j / run));
      const double u = std::fabs(up.values[j]) + up.e(j);
      out.y[j] = act.y * up.values[j];
      const double moved = act.error * u + std::fabs(act.y) * up.e(j);
      out.bound[j] = moved + u_ * (std::fabs(out.y[j]) + moved) + tiny_;
    }
  }

  void run(const ops::Scale& op, int64_t i, Out out) const { scaled(i, op.factor, out); }
  void run(const ops::ScaleColumns&, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    const size_t n = out.y.size() / norm_weights_.size();
    for (size_t j = 0; j < out.y.size(); ++j) {
      const double w = norm_weights_[j / n], moved = std::fabs(w) * x.e(j);
      out.y[j] = w * x.values[j];
      out.bound[j] = moved + gamma(2, u_) * (std::fabs(out.y[j]) + moved) + tiny_;
    }
  }

  void run(const ops::AddColumns&, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    for (size_t j = 0; j < out.y.size(); ++j) {
      out.y[j] = x.values[j] + norm_weights_[j];
      out.bound[j] = u_ * std::fabs(out.y[j]) + (1 + u_) * x.e(j) + tiny_;
    }
  }

  // The cut is off by the mean's and the deviation's roundings, as in LayerNorm; max(x - c, 0) moves no further than x and c.
  void run(const ops::SparseGate& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    const double count = static_cast<double>(out.y.size()), n_sum = declared_.own_sums ? std::ceil(count / 32) + 5 : count;
    double mean = 0, magnitude = 0, error = 0, squares = 0;
    for (size_t j = 0; j < out.y.size(); ++j) mean += x.values[j] / count, magnitude += std::fabs(x.values[j]) / count, error += x.e(j) / count;
    const double of_mean = gamma(n_sum + 2, u_) * (magnitude + error) + error;
    double off = 0;  // the largest that an element of x - mean is off: so is their root mean square
    for (size_t j = 0; j < out.y.size(); ++j) {
      squares += (x.values[j] - mean) * (x.values[j] - mean);
      off = std::max(off, x.e(j) + of_mean + u_ * std::fabs(x.values[j] - mean));
    }
    const double deviation = std::sqrt(squares / count), of_deviation = off + gamma(n_sum / 2 + 3, u_) * (deviation + off);
    const double cut = mean + op.factor * deviation;
    const double of_cut = of_mean + std::fabs(op.factor) * of_deviation + gamma(3, u_) * (std::fabs(mean) + std::fabs(op.factor) * (deviation + of_deviation));
    for (size_t j = 0; j < out.y.size(); ++j) {
      out.y[j] = std::max(x.values[j] - cut, 0.0);
      out.bound[j] = x.e(j) + of_cut + u_ * (std::fabs(x.values[j] - cut) + x.e(j) + of_cut) + tiny_;
    }
  }

  // A root mean square moves by the largest dx at most, and by n_s / 2 + 2 roundings.
  void run(const ops::MatchMagnitude& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i), like = row_of(in_.b, i);
    const double count = static_cast<double>(out.y.size()), n_sum = declared_.own_sums ? std::ceil(count / 32) + 5 : count;
    const auto root = [&](const Row& row) {
      double squares = 0, off = 0;
      for (size_t j = 0; j < out.y.size(); ++j) squares += row.values[j] * row.values[j], off = std::max(off, row.e(j));
      return std::pair(std::sqrt(squares / count), off);
    };
    const auto [own, of_own] = root(x);
    const auto [other, of_other] = root(like);
    const double divisor = std::max(own, op.eps), by = other / divisor, least = std::max(divisor - of_own, op.eps);
    const double of_by = (of_other + by * of_own) / least;
    for (size_t j = 0; j < out.y.size(); ++j) {
      out.y[j] = x.values[j] * by;
      const double moved = x.e(j) * (by + of_by) + std::fabs(x.values[j]) * of_by;
      out.bound[j] = moved + gamma(n_sum + 6, u_) * (std::fabs(out.y[j]) + moved) + tiny_;
    }
  }

  // As RMSNorm, of a sum in place of a mean.
  void run(const ops::L2Norm& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    const auto d = at(op.d);
    const double eps = static_cast<double>(op.eps), count = static_cast<double>(op.d);
    const double n_sum = declared_.own_sums ? std::ceil(count / 32) + 5 : count;
    for (size_t begin = 0; begin < x.values.size(); begin += d) {
      double sum = eps, moved = 0;
      for (size_t j = begin; j < begin + d; ++j) {
        sum += x.values[j] * x.values[j];
        moved += x.e(j) * (2 * std::fabs(x.values[j]) + x.e(j));
      }
      const double r = 1 / std::sqrt(sum), t = moved / sum;
      const double off = moved == 0 ? 0 : t < 0.5 ? 1 / std::sqrt(1 - t) - 1 : eps > 0 ? std::sqrt(sum / eps) : HUGE_VAL;
      const double rounding = gamma(n_sum / 2 + 5, u_) + gamma(count / 2 + 5, kUnitDouble) + count * 0x1p-149 / sum;
      for (size_t j = begin; j < begin + d; ++j) {
        const double from_x = r * (x.e(j) * (1 + off) + std::fabs(x.values[j]) * off);
        out.y[j] = x.values[j] * r;
        out.bound[j] = from_x + rounding * (std::fabs(out.y[j]) + from_x) + tiny_;
      }
    }
  }
  void run(const ops::ScaleByPosition& op, int64_t i, Out out) const {
    scaled(i, ops::position_scale(op.beta, op.period, op.offset, in_.positions[at(i)]), out);
  }

  // x / cap, tanh good to 3 u and the product: cap tanh moves no further than x, nor by more than its own relative error.
  void run(const ops::Softcap& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    for (size_t j = 0; j < out.y.size(); ++j) {
      out.y[j] = op.cap * num::tanh64(x.values[j] / op.cap);
      out.bound[j] = x.e(j) + gamma(10, u_) * (std::fabs(out.y[j]) + x.e(j)) + tiny_;
    }
  }

  void run(const ops::Clamp& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    for (size_t j = 0; j < out.y.size(); ++j) {
      out.y[j] = std::clamp(x.values[j], -op.limit, op.limit);
      out.bound[j] = x.e(j) + u_ * std::fabs(out.y[j]) + tiny_;
    }
  }

  void run(const ops::Activate& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    for (size_t j = 0; j < out.y.size(); ++j) {
      const Activation act = activate(op.activation, x.values[j], x.e(j));
      out.y[j] = act.y;
      out.bound[j] = act.error + tiny_;
    }
  }

  // Above 0 two products and a sum of numbers rounded once; below, e^m - 1 good to 6 u, and what cancels is bounded by its parts.
  void run(const ops::Xielu& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    for (size_t j = 0; j < out.y.size(); ++j) {
      const double v = x.values[j], dx = x.e(j), linear = std::fabs(op.beta * v);
      const double m = std::expm1(std::min(v, op.eps));
      const double a = std::fabs(op.a), b = std::fabs(op.b);
      out.y[j] = v > 0 ? op.a * v * v + op.beta * v : (m - v) * op.b + op.beta * v;
      const double magnitude = v > 0 ? a * v * v + linear : b * (std::fabs(m) + std::fabs(v)) + linear;
      const double moved = dx * (2 * a * (std::fabs(v) + dx) + b + std::fabs(op.beta));
      out.bound[j] = moved + gamma(10, u_) * (magnitude + moved) + tiny_;
    }
  }

  void run(const ops::EmbedPosition& op, int64_t i, Out out) const {
    const tensor::TensorView& table = in_.plan.weights[at(op.table)].view;
    std::vector<float> decoded(out.y.size());
    quant::decode_row(*quant::find_format(table.dtype), table.row(op.row >= 0 ? op.row : in_.positions[at(i)]), static_cast<int64_t>(decoded.size()), decoded.data());
    for (size_t j = 0; j < decoded.size(); ++j) {
      out.y[j] = static_cast<double>(decoded[j]);
      out.bound[j] = (declared_.own_sums ? 0 : gamma(2, u_)) * std::fabs(out.y[j]) + tiny_;
    }
  }

  // The mean carries n_s + 1 roundings of magnitudes |x|; what it is off, and what x is, moves every c = x - m; the rest as in RMSNorm.
  void run(const ops::LayerNorm& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    const auto d = at(op.d);
    const double count = static_cast<double>(op.d), eps = static_cast<double>(op.eps);
    const double n_sum = declared_.own_sums ? std::ceil(count / 32) + 5 : count;
    for (size_t begin = 0; begin < x.values.size(); begin += d) {
      double mean = 0, magnitude = 0, error = 0, squares = 0, moved = 0;
      for (size_t j = begin; j < begin + d; ++j) mean += x.values[j] / count, magnitude += std::fabs(x.values[j]) / count, error += x.e(j) / count;
      const double of_mean = gamma(n_sum + 1, u_) * (magnitude + error) + error + gamma(count, kUnitDouble) * magnitude;
      const auto off_c = [&](size_t j) { return (x.e(j) + of_mean) * (1 + u_) + u_ * std::fabs(x.values[j] - mean); };
      for (size_t j = begin; j < begin + d; ++j) {
        const double c = std::fabs(x.values[j] - mean);
        squares += c * c;
        moved += off_c(j) * (2 * c + off_c(j));
      }
      const double variance = squares / count + eps, r = 1 / std::sqrt(variance), t = moved / count / variance;
      const double off = moved == 0 ? 0 : t < 0.5 ? 1 / std::sqrt(1 - t) - 1 : std::sqrt(variance / eps);
      const double rounding = gamma(n_sum / 2 + 6, u_) + gamma(count, kUnitDouble) + count * 0x1p-149 / variance;
      for (size_t j = begin; j < begin + d; ++j) {
        const double w = norm_weights_.empty() ? 1.0 : norm_weights_[op.by_column ? j : j - begin];
        const double b = norm_biases_.empty() ? 0.0 : norm_biases_[op.by_column ? j : j - begin];
        const double c = x.values[j] - mean, by_w = std::fabs(w) * r;
        const double from_x = by_w * (off_c(j) * (1 + off) + std::fabs(c) * off), product = by_w * std::fabs(c);
        out.y[j] = c * r * w + b;
        out.bound[j] = from_x + rounding * (product + from_x) + u_ * (std::fabs(out.y[j]) + from_x) + tiny_;
      }
    }
  }

  // A chain of k products and sums; x and weights may be off.
  void run(const ops::ExpertSum& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i), routes = row_of(in_.b, i);
    const size_t d = out.y.size();
    for (size_t j = 0; j < d; ++j) {
      double sum = 0, magnitude = 0, moved = 0;
      for (size_t k = 0; k < at(op.n_used); ++k) {
        const double w = op.weighted ? routes.values[k] : 1, dw = op.weighted ? routes.e(k) : 0, value = x.values[k * d + j], dx = x.e(k * d + j);
        sum += w * value;
        magnitude += std::fabs(w * value);
        moved += std::fabs(w) * dx + dw * (std::fabs(value) + dx);
      }
      out.y[j] = sum;
      out.bound[j] = moved + gamma(static_cast<double>(op.n_used) + 1, u_) * (magnitude + moved) + tiny_;
    }
  }

  void run(const ops::ExpertScale&, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i), routes = row_of(in_.b, i);
    const size_t d = x.values.size();
    for (size_t j = 0; j < out.y.size(); ++j) {
      const double w = routes.values[j / d], dw = routes.e(j / d), value = x.values[j % d], dx = x.e(j % d);
      out.y[j] = w * value;
      const double moved = std::fabs(w) * dx + dw * (std::fabs(value) + dx);
      out.bound[j] = moved + u_ * (std::fabs(out.y[j]) + moved) + tiny_;
    }
  }

  // g sigmoid(alpha g): |slope| <= 1.1 for alpha about 1.7 as for 1, and alpha rounded moves the sigmoid by alpha g u / 4 at most.
  void run(const ops::ClampedGate& op, int64_t i, Out out) const {
    const Row gate = row_of(in_.a, i), up = row_of(in_.b, i);
    for (size_t j = 0; j < out.y.size(); ++j) {
      const double g = std::min(gate.values[j], op.limit), u = std::clamp(up.values[j], -op.limit, op.limit) + 1;
      const double a = op.alpha * g, sigma = ops::sigmoid64(a), gated = g * sigma;
      const double of_gate = 1.2 * gate.e(j) + std::fabs(gated) * gamma(2 * (1 - sigma) + 4, u_) + std::fabs(g) * std::fabs(a) * sigma * (1 - sigma) * 3 * u_ +
                             u_ * std::fabs(g);
      const double of_up = up.e(j) + u_ * (std::fabs(u) + op.limit);
      out.y[j] = gated * u;
      const double moved = of_gate * (std::fabs(u) + of_up) + std::fabs(gated) * of_up;
      out.bound[j] = moved + gamma(2, u_) * (std::fabs(out.y[j]) + moved) + tiny_;
    }
  }

  // Copies.
  void run(const ops::Slice& op, int64_t i, Out out) const {
    const Row x = row_of(in_.a, i);
    const size_t n = at(op.n_runs), from = x.values.size() / n, to = out.y.size() / n;
    for (size_t j = 0; j < out.y.size(); ++j) {
      const size_t k = j / to * from + at(op.first) + j % to;
      out.y[j] = x.values[k];
      out.bound[j] = x.e(k) + tiny_;
    }
  }
  void run(const ops::Join& op, int64_t i, Out out) const {
    const Row a = row_of(in_.a, i), b = row_of(in_.b, i);
    const size_t n = at(op.n_runs), of_a = a.values.size() / n, to = out.y.size() / n, of_b = to - of_a, stride_b = b.values.size() == of_b ? 0 : of_b;
    for (size_t j = 0; j < out.y.size(); ++j) {
      const size_t run = j / to, k = j % to;
      const bool is_a = k < of_a;
      const size_t from = is_a ? run * of_a + k : run * stride_b + k - of_a;
      out.y[j] = is_a ? a.values[from] : b.values[from];
      out.bound[j] = (is_a ? a.e(from) : b.e(from)) + tiny_;
    }
  }

  void run(const ops::SelectOutputs&, int64_t i, Out out) const {
    const Row a = row_of(in_.a, i);
    for (size_t j = 0; j < out.y.size(); ++j) {
      out.y[j] = a.values[j];
      out.bound[j] = a.e(j);
    }
  }

  void prepare(const ops::RmsNorm& op) {
    if (op.w != ops::kNone) norm_weights_ = ops::vector_of(in_.plan.weights[at(op.w)]);
  }
  void prepare(const ops::LayerNorm& op) {
    if (op.w != ops::kNone) norm_weights_ = ops::vector_of(in_.plan.weights[at(op.w)]);
    if (op.bias != ops::kNone) norm_biases_ = ops::vector_of(in_.plan.weights[at(op.bias)]);
  }
  void prepare(const ops::AddColumns& op) { norm_weights_ = ops::vector_of(in_.plan.weights[at(op.w)]); }
  void prepare(const ops::ScaleColumns& op) { norm_weights_ = ops::vector_of(in_.plan.weights[at(op.w)]); }
  template <class Record>
  void prepare(const Record&) {}

 private:
  struct Activation {
    double y, error;
  };
  static constexpr double kUnderflow =
      3e-37;  // |x| / infinity, where exp(-x) overflowed: the true value is below this

  // One bound a function of ops/rows/activation.h.
  Activation activate(ops::ActivationFunction function, double x, double dx) const {
    using F = ops::ActivationFunction;
    switch (function) {  // the compiler asks for a case of each
      case F::silu: return silu(x, dx);
      case F::gelu_tanh: return gelu(x, dx);
      case F::gelu_erf: return gelu_erf(x, dx);
      case F::relu_squared: return relu_squared(x, dx);
      case F::sigmoid: return sigmoid(x, dx);
      case F::softplus: return softplus(x, dx);
      case F::exponential: return exponential(x, dx);
      case F::identity: return {x, dx};
      case F::n_functions: break;
    }
    return {x - x, 0};  // no function
  }

  // x / (1 + e), e = exp(-x) good to 2 u: (e / (1 + e)) 2 u, then the sum and the quotient.
  // |silu''| <= 1/2, |silu'| < 1.1.
  Activation silu(double x, double dx) const {
    const double e = num::exp64(-x), sigma = 1 / (1 + e);
    const double y = x * sigma, slope = std::fabs(sigma * (1 + x * (1 - sigma)));
    const double moved = dx == 0 ? 0 : dx * std::min(1.1, slope + 0.5 * dx);
    const double rounding = declared_.own_sums ? gamma(2 * (1 - sigma) + 2.1, u_) : gamma(10, u_);
    return {y, moved + rounding * (std::fabs(y) + moved) + kUnderflow};
  }

  // x / (1 + e), e = exp(-v), v = x fma(x x, c3, c1) good to 4 u (two constants, x x, fma,
  // product): exp turns that into 4 |v| u. Others write 1 + tanh, which cancels below zero: 4 u |x|
  // absolute. |gelu''| < 1, |gelu'| < 1.2.
  Activation gelu(double x, double dx) const {
    const double c1 = 2 * std::sqrt(2 / std::numbers::pi), c3 = 0.044715 * c1;
    const double v = x * (c1 + c3 * x * x), e = num::exp64(-v), sigma = 1 / (1 + e);
    const double y = x * sigma,
                 slope = std::fabs(sigma + x * sigma * (1 - sigma) * (c1 + 3 * c3 * x * x));
    const double slope_max =
        std::isfinite(slope) ? slope
                             : 0;  // far out e is infinite and the product of 0 and infinity none
    if (declared_.gelu_table_f16) dx += kUnitHalf * std::fabs(x) + kTinyHalf;
    const double moved = dx == 0 ? 0 : dx * std::min(1.2, slope_max + dx);
    double error = moved + kUnderflow;
    if (declared_.own_sums) {
      const double v_error = 4 * std::min(std::fabs(v), 1000.0);
      error += gamma((1 - sigma) * (v_error + 2) + 2.1, u_) * (std::fabs(y) + moved);
    } else {
      error += 8 * u_ * (std::fabs(x) + std::fabs(y));
    }
    if (declared_.gelu_table_f16) error += kUnitHalf * (std::fabs(y) + moved) + kTinyHalf;
    return {y, error};
  }

  // x times the normal distribution: the tail is good to 14 u, whatever x. |gelu'| < 1.13, |gelu''| < 0.8.
  Activation gelu_erf(double x, double dx) const {
    const double tail = 0.5 * std::erfc(std::fabs(x) / std::numbers::sqrt2);
    const double slope = std::fabs((x > 0 ? 1 - tail : tail) + x * num::exp64(-std::min(x * x / 2, 700.0)) / std::sqrt(2 * std::numbers::pi));
    const double y = ops::gelu_erf64(x), moved = dx == 0 ? 0 : dx * std::min(1.2, slope + dx);
    return {y, moved + gamma(15, u_) * (std::fabs(x) * tail + moved) + 2 * u_ * (std::fabs(y) + moved) + kUnderflow};
  }

  Activation relu_squared(double x, double dx) const {
    const double y = ops::relu_squared64(x), largest = std::max(x, 0.0) + dx;
    const double moved = x + dx <= 0 ? 0 : dx * 2 * largest;
    return {y, moved + u_ * (y + moved)};
  }

  // |sigmoid'| <= 1/4; exp good to 2 u, then the sum and the quotient.
  Activation sigmoid(double x, double dx) const {
    const double y = ops::sigmoid64(x), moved = dx / 4;
    return {y, moved + gamma(declared_.own_sums ? 2 * (1 - y) + 2.1 : 10, u_) * (y + moved) + kUnderflow};
  }

  // |softplus'| <= 1; exp good to 2 u, the series and the two sums to 8.
  Activation softplus(double x, double dx) const {
    const double y = ops::softplus64(x);
    return {y, dx + gamma(12, u_) * (y + dx) + kUnderflow};
  }

  // Good to 2 u; dx moves it by the factor e^dx at most.
  Activation exponential(double x, double dx) const {
    const double y = num::exp64(x), moved = dx == 0 ? 0 : y * std::expm1(std::min(dx, 700.0));
    return {y, moved + gamma(declared_.own_sums ? 2.1 : 8, u_) * (y + moved) + kUnderflow};
  }

  // y = x * factor, the factor rounded once more.
  void scaled(int64_t i, double factor, Out out) const {
    const Row x = row_of(in_.a, i);
    for (size_t j = 0; j < out.y.size(); ++j) {
      out.y[j] = x.values[j] * factor;
      const double moved = std::fabs(factor) * x.e(j);
      out.bound[j] = moved + gamma(2, u_) * (std::fabs(out.y[j]) + moved) + tiny_;
    }
  }

  const OpInputs& in_;
  const Declared& declared_;
  double u_, tiny_;
  std::vector<double> norm_weights_, norm_biases_;
};

int64_t n_rows_of(const OpInputs& in) {
  return in.op.is<ops::Embed>() || in.op.is<ops::EmbedPosition>() ? static_cast<int64_t>(in.tokens.size())
                                                          : in.a.n;
}

template <class Record>
Expected small_op(const OpInputs& in, const Record& record, const Declared& declared,
                  base::ThreadPool& pool, const LocalOptions& options) {
  const int64_t n = n_rows_of(in), width = in.plan.values[at(record.y)].width;
  SmallOp small(in, declared);
  small.prepare(record);
  Expected e;
  e.y.resize(at(n * width));
  e.bound.resize(e.y.size());
  const auto row = [&](std::vector<double>& all, int64_t i) {
    return std::span(all).subspan(at(i * width), at(width));
  };
  pool.run(n, [&](int64_t i, int) { small.run(record, i, {row(e.y, i), row(e.bound, i)}); });
  if (options.chain != nullptr) {
    const OpInputs of_chain{in.plan,      in.op, options.chain->a, options.chain->b, in.tokens,
                            in.positions, {}};
    SmallOp chain(of_chain, declared);
    chain.prepare(record);
    options.chain->y.resize(e.y.size());
    std::vector<std::vector<double>> unused(at(pool.n_threads()), std::vector<double>(at(width)));
    pool.run(n, [&](int64_t i, int thread) {
      chain.run(record, i, {row(options.chain->y, i), unused[at(thread)]});
    });
  }
  return e;
}

Expected nothing(const OpInputs&, const Declared&, base::ThreadPool&, const LocalOptions&) { return {}; }

using BoundOf = Expected (*)(const OpInputs&, const Declared&, base::ThreadPool&, const LocalOptions&);
struct BoundRow {
  const void* op;  // its type
  BoundOf bound;
};
template <class R>
BoundRow small() {
  return {ops::Record::type_of<R>(), [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
            return small_op(in, in.op.get<R>(), declared, pool, options);
          }};
}

BoundOf find_bound(const ops::Op& op) {
  static const BoundRow kBounds[] = {
      {ops::Record::type_of<ops::Linear>(), [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_linear(in, in.op.get<ops::Linear>(), declared, pool, options);
       }},
      {ops::Record::type_of<ops::Attention>(), [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_attention(in, in.op.get<ops::Attention>(), declared, pool, options);
       }},
      {ops::Record::type_of<ops::KvStore>(), nothing},
      {ops::Record::type_of<ops::CausalConv>(), nothing},  // by state_bound.h
      {ops::Record::type_of<ops::DeltaRule>(), nothing},
      {ops::Record::type_of<ops::SelectiveScan>(), nothing},
      {ops::Record::type_of<ops::Gather>(), nothing},
      small<ops::Embed>(),
      small<ops::RmsNorm>(),
      small<ops::Rope>(),
      small<ops::Add>(),
      small<ops::Gate>(),
      small<ops::SelectOutputs>(),
      small<ops::LayerNorm>(),
      small<ops::Scale>(),
      small<ops::ScaleColumns>(),
      small<ops::AddColumns>(),
      small<ops::L2Norm>(),
      small<ops::SparseGate>(),
      small<ops::MatchMagnitude>(),
      small<ops::ScaleByPosition>(),
      small<ops::Softcap>(),
      small<ops::Clamp>(),
      small<ops::Activate>(),
      small<ops::Xielu>(),
      small<ops::EmbedPosition>(),
      small<ops::ExpertSum>(),
      small<ops::ExpertScale>(),
      small<ops::ClampedGate>(),
      small<ops::Slice>(),
      small<ops::Join>(),
      {ops::Record::type_of<ops::Route>(), [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_route(in, in.op.get<ops::Route>(), declared, pool, options);
       }},
      {ops::Record::type_of<ops::ExpertLinear>(), [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_expert_linear(in, in.op.get<ops::ExpertLinear>(), declared, pool, options);
       }},
  };
  const auto* found = std::ranges::find(kBounds, op.record.type(), &BoundRow::op);
  return found == std::end(kBounds) ? nullptr : found->bound;
}

}  // namespace

bool has_bound(const ops::Op& op) { return find_bound(op) != nullptr; }

Expected local_op(const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
  const BoundOf bound = find_bound(in.op);
  if (bound == nullptr) throw Error(Errc::unsupported, in.op.name + ": there is no bound for " + in.op.record.kind() + ", so it cannot be verified");
  return bound(in, declared, pool, options);
}

}  // namespace assay::verify
