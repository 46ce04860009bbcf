// Known ways to rotate queries and keys wrongly.
#include "ops/attention/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/oracle/oracle_ops.h"
#include "faults/table.h"
#include "num/math64.h"
#include "ops/attention/attention.h"
#include "ops/plan/float64.h"

namespace assay::faults::dictionary {
namespace {

struct RopeRule {
  ops::RopeSpec spec;
  std::function<double(int64_t row)> position;
  int64_t n_heads_rotated = 0;  // the others pass through
  bool f32_angles = false;
};

RopeRule right_rule(const Case& c) {
  const auto& op = c.record<ops::Rope>();
  return {c.plan.ropes[static_cast<size_t>(op.rope)],
          [&c](int64_t row) { return static_cast<double>(c.position(row)); }, op.n_heads, false};
}

RowFunction rope_with(const Case& c, RopeRule rule) {
  return [&c, rule = std::move(rule)](int64_t row, double* y) {
    const auto width = static_cast<size_t>(c.failed.width);
    const double position = rule.position(row);
    std::copy_n(c.a(row), width, y);
    ops::RopeSpec spec = rule.spec;
    for (double& f : spec.inverse_frequency) {
      if (rule.f32_angles) f = static_cast<double>(static_cast<float>(position) * static_cast<float>(f));
    }
    ops::rotate64(spec, rule.f32_angles ? 1.0 : position, rule.n_heads_rotated, c.record<ops::Rope>().head_dim,
                  std::span(y, width), std::span(y, width));
  };
}

void offer_pairing(const Case& c, Sink& out) {
  RopeRule rule = right_rule(c);
  rule.spec.interleaved = !rule.spec.interleaved;
  out.add_rows(rule.spec.interleaved
                   ? "RoPE rotates neighbours (2i, 2i + 1) where the file's layout has halves (i, i + d/2)"
                   : "RoPE rotates halves (i, i + d/2) where the file's layout has neighbours (2i, 2i + 1)",
               rope_with(c, rule));
}

void offer_not_rotated(const Case& c, Sink& out) {
  out.add_rows("the heads are not rotated at all",
               [&c](int64_t row, double* y) { std::copy_n(c.a(row), c.failed.width, y); });
}

using Position = std::function<double(int64_t row)>;
void offer_position(const Case& c, Sink& out, std::string text, Position position) {
  bool differs = false;
  for (int64_t row = 0; row < c.failed.n_rows; ++row)
    differs = differs || position(row) != static_cast<double>(c.position(row));
  if (!differs) return;
  RopeRule rule = right_rule(c);
  rule.position = std::move(position);
  out.add_rows(std::move(text), rope_with(c, rule));
}

void offer_position_start(const Case& c, Sink& out) {
  const auto at = [&c](int64_t row) { return static_cast<double>(c.position(row)); };
  const auto start = [&c](int64_t row) { return static_cast<double>(c.batch_start(row)); };
  offer_position(c, out, "positions start from 0 at each batch (at each step of a decode); they go on from the cache",
                 [=](int64_t r) { return at(r) - start(r); });
  offer_position(c, out, "the position is the index in the batch; it is that of the token in its sequence",
                 [](int64_t r) { return static_cast<double>(r); });
  offer_position(c, out, "all tokens of the batch are rotated by the position of its first", start);
  offer_position(c, out, "all positions are taken as 0", [](int64_t) { return 0.0; });
  offer_position(c, out,
                 "the position is counted after the batch was added to the cache: too large by the "
                 "batch's length",
                 [=, &c](int64_t r) {
                   int64_t n = 0;
                   for (int64_t t = 0; t < c.failed.n_rows; ++t) n += c.sequence(t) == c.sequence(r) ? 1 : 0;
                   return at(r) + static_cast<double>(n);
                 });
  offer_position(c, out, "the batch's first position is counted twice", [=](int64_t r) { return at(r) + start(r); });
}

void offer_retained(const Case& c, Sink& out) {
  for (const ops::CacheLayer& layer : c.plan.cache_layers) {
    if (layer.window <= 0) continue;
    const auto window = static_cast<double>(layer.window);
    offer_position(c, out,
                   fmt::format("positions go on from the number of keys that a window of {} "
                               "retains; they go on from the true position",
                               layer.window),
                   [&c, window](int64_t r) {
                     const auto start = static_cast<double>(c.batch_start(r));
                     return static_cast<double>(c.position(r)) - start + std::min(start, window);
                   });
    return;
  }
}

void offer_position_shift(const Case& c, Sink& out) {
  for (const double by : {1.0, -1.0, 2.0, -2.0}) {
    offer_position(c, out, fmt::format("positions are shifted by {:+}", by),
                   [&c, by](int64_t r) { return static_cast<double>(c.position(r)) + by; });
  }
}

// theta of frequencies that are a geometric series, whole or at the end that no scaling touches; 0:
// there is none.
double theta_of(const ops::RopeSpec& spec) {
  if (spec.dim < 4 || spec.inverse_frequency.size() < 2 || !(spec.inverse_frequency[1] > 0)) return 0;
  return std::pow(spec.inverse_frequency[0] / spec.inverse_frequency[1], static_cast<double>(spec.dim) / 2);
}

std::vector<double> frequencies(double theta, int64_t n, double dim) {
  std::vector<double> f;
  for (int64_t i = 0; i < n; ++i) f.push_back(num::pow64(theta, -2.0 * static_cast<double>(i) / dim));
  return f;
}

void offer_theta(const Case& c, Sink& out) {
  const RopeRule right = right_rule(c);
  const double theta = theta_of(right.spec);
  if (theta <= 0) return;
  std::vector<double> tried = {theta};
  std::vector<double> others = {1e4, 5e5, 1e6, 1e5, 8e6, 1e7, 1.5e5, 1.6e5, theta * 10, theta / 10};
  for (const ops::RopeSpec& spec : c.plan.ropes)
    others.push_back(theta_of(spec));  // gemma3: windowed layers have their own
  for (const double other : others) {
    const auto same = [other](double x) { return std::abs(x / other - 1) < 1e-3; };
    if (other <= 1 || std::any_of(tried.begin(), tried.end(), same)) continue;
    tried.push_back(other);
    RopeRule rule = right;
    rule.spec.inverse_frequency = frequencies(other, right.spec.dim / 2, static_cast<double>(right.spec.dim));
    for (double& f : rule.spec.inverse_frequency) f *= right.spec.inverse_frequency[0];
    out.add_rows(fmt::format("RoPE's base is {:g} in place of the file's {:.6g}", other, theta), rope_with(c, rule));
    RopeRule scaled = right;
    const auto dim = static_cast<double>(right.spec.dim);
    for (size_t i = 0; i < scaled.spec.inverse_frequency.size(); ++i) {
      scaled.spec.inverse_frequency[i] *= num::pow64(other / theta, -2.0 * static_cast<double>(i) / dim);
    }
    const auto apart = [&](size_t i) {
      return std::abs(scaled.spec.inverse_frequency[i] / rule.spec.inverse_frequency[i] - 1);
    };
    if (apart(scaled.spec.inverse_frequency.size() - 1) < 1e-9) continue;  // nothing is scaled
    out.add_rows(fmt::format("RoPE's base is {:g} in place of the file's {:.6g}, scaled rightly", other, theta),
                 rope_with(c, scaled));
  }
}

// The other rotations of the plan.
void offer_other_rope(const Case& c, Sink& out) {
  const RopeRule right = right_rule(c);
  for (size_t i = 0; i < c.plan.ropes.size(); ++i) {
    if (c.plan.ropes[i] == right.spec || c.plan.ropes[i].dim > c.record<ops::Rope>().head_dim) continue;
    RopeRule rule = right;
    rule.spec = c.plan.ropes[i];
    out.add_rows(fmt::format("rotated as other layers are (base {:.6g}); this layer's base is {:.6g}",
                             theta_of(rule.spec), theta_of(right.spec)),
                 rope_with(c, rule));
  }
}

void offer_frequencies(const Case& c, Sink& out, std::string text, std::vector<double> f) {
  RopeRule rule = right_rule(c);
  if (f == rule.spec.inverse_frequency) return;
  rule.spec.inverse_frequency = std::move(f);
  out.add_rows(std::move(text), rope_with(c, rule));
}

// Llama 3.1: long waves are slowed by the factor, short ones kept, and a ramp between.
double llama3_factor(double frequency, double factor) {
  constexpr double kContext = 8192, kLow = 1, kHigh = 4;
  const double wave = 2 * std::numbers::pi / frequency;
  if (wave < kContext / kHigh) return 1;
  if (wave > kContext / kLow) return factor;
  const double ramp = (kContext / wave - kLow) / (kHigh - kLow);
  return 1 / ((1 - ramp) / factor + ramp);
}

void offer_scaling(const Case& c, Sink& out) {
  const ops::RopeSpec right = right_rule(c).spec;
  const double theta = theta_of(right);
  if (theta <= 1) return;
  const std::vector<double> plain = frequencies(theta, right.dim / 2, static_cast<double>(right.dim));
  const auto scaled = [](const std::vector<double>& f, auto by) {
    std::vector<double> result = f;
    for (size_t i = 0; i < result.size(); ++i) result[i] *= by(i);
    return result;
  };
  const auto declared = [&](size_t i) { return right.inverse_frequency[i] / plain[i]; };  // the file's scaling
  const bool has_scaling = std::abs(declared(plain.size() - 1) - 1) > 1e-6 || std::abs(declared(0) - 1) > 1e-6;
  if (has_scaling) {
    const double f = 1 / declared(plain.size() - 1);
    offer_frequencies(c, out, fmt::format("the file's RoPE scaling (up to {:.4g}) is ignored", f), plain);
    offer_frequencies(c, out, fmt::format("the file's RoPE scaling (up to {:.4g}) is applied twice", f),
                      scaled(right.inverse_frequency, declared));
    offer_frequencies(c, out,
                      fmt::format("RoPE is scaled by {:.4g} in all dimensions; the file scales by frequency", f),
                      scaled(plain, [f](size_t) { return 1 / f; }));
  }
  for (const double factor : {2.0, 4.0, 8.0, 16.0, 32.0, 0.5, 0.25}) {
    offer_frequencies(
        c, out, fmt::format("positions are divided by {:g} (linear scaling), which the file does not ask for", factor),
        scaled(right.inverse_frequency, [factor](size_t) { return 1 / factor; }));
  }
  for (const double factor : {8.0, 32.0}) {
    offer_frequencies(c, out,
                      fmt::format("Llama 3's scaling by {:g} is applied, which the file does not ask for", factor),
                      scaled(plain, [&](size_t i) { return 1 / llama3_factor(plain[i], factor); }));
  }
}

void offer_magnitude(const Case& c, Sink& out) {
  const RopeRule right = right_rule(c);
  if (right.spec.magnitude == 1.0) return;
  for (const int power : {0, 2}) {
    RopeRule rule = right;
    rule.spec.magnitude = std::pow(right.spec.magnitude, power);
    out.add_rows(
        fmt::format("YaRN's magnitude {:.6g} is {}", right.spec.magnitude, power == 0 ? "missing" : "applied twice"),
        rope_with(c, rule));
  }
}

void offer_dims(const Case& c, Sink& out) {
  const RopeRule right = right_rule(c);
  const int64_t dim = right.spec.dim, head_dim = c.record<ops::Rope>().head_dim;
  const double theta = theta_of(right.spec);
  for (const int64_t other : {dim / 2, dim / 4, head_dim, head_dim / 2, 2 * dim}) {
    if (other == dim || other < 2 || other > head_dim || other % 2 != 0 || theta <= 1) continue;
    for (const int64_t base : {other, dim}) {  // the exponent's denominator
      RopeRule rule = right;
      rule.spec.dim = other;
      rule.spec.inverse_frequency = frequencies(theta, other / 2, static_cast<double>(base));
      out.add_rows(fmt::format("{} of a head's {} dimensions are rotated (exponents over {}); the file rotates {}",
                               other, head_dim, base, dim),
                   rope_with(c, rule));
    }
  }
  if (head_dim != dim && theta > 1) {
    RopeRule rule = right;
    rule.spec.inverse_frequency = frequencies(theta, dim / 2, static_cast<double>(head_dim));
    out.add_rows(fmt::format("exponents of the frequencies are over the head's {} dimensions; over "
                             "the {} that are rotated is right",
                             head_dim, dim),
                 rope_with(c, rule));
  }
}

void offer_direction(const Case& c, Sink& out) {
  RopeRule rule = right_rule(c);
  rule.position = [&c](int64_t row) { return -static_cast<double>(c.position(row)); };
  out.add_rows("rotated backwards: the sign of the sine is wrong", rope_with(c, rule));
}

void offer_twice(const Case& c, Sink& out) {
  RopeRule rule = right_rule(c);
  rule.position = [&c](int64_t row) { return 2.0 * static_cast<double>(c.position(row)); };
  rule.spec.magnitude *= rule.spec.magnitude;
  out.add_rows("rotated twice", rope_with(c, rule));
}

void offer_heads(const Case& c, Sink& out) {
  const RopeRule right = right_rule(c);
  const ops::Attention* attention = c.attention();
  for (const int64_t n : {attention != nullptr ? attention->n_kv_heads : 0, int64_t{1}, right.n_heads_rotated / 2}) {
    if (n <= 0 || n >= right.n_heads_rotated) continue;
    RopeRule rule = right;
    rule.n_heads_rotated = n;
    out.add_rows(fmt::format("only the first {} of {} heads are rotated", n, right.n_heads_rotated),
                 rope_with(c, rule));
  }
}

// A table that is less precise than the contract's: not wrong, but the reason of a difference.
void offer_less_precise(const Case& c, Sink& out) {
  RopeRule rule = right_rule(c);
  rule.f32_angles = true;
  out.add_rows("less precise table: angles are computed in f32 (position * f32 frequency)", rope_with(c, rule));
  const double theta = theta_of(rule.spec);
  if (theta <= 1) return;
  const float step = std::pow(static_cast<float>(theta), -2.0f / static_cast<float>(rule.spec.dim));
  float f = 1;
  for (double& frequency : rule.spec.inverse_frequency) {
    frequency = static_cast<double>(f);
    f *= step;
  }
  out.add_rows("less precise table: frequencies are a running product in f32", rope_with(c, rule));
  for (const bool half : {true, false}) {
    rule = right_rule(c);
    for (double& frequency : rule.spec.inverse_frequency) frequency = half ? as_f16(frequency) : as_bf16(frequency);
    out.add_rows(fmt::format("less precise table: frequencies are kept in {}", half ? "f16" : "bf16"),
                 rope_with(c, rule));
  }
  rule = right_rule(c);
  rule.position = [&c](int64_t row) { return as_bf16(static_cast<double>(c.position(row))); };
  out.add_rows("less precise table: positions are kept in bf16 (exact up to 256 only)", rope_with(c, rule));
}

constexpr Entry kEntries[] = {
    {"rope_pairing", "C21", offer_pairing},
    {"rope_not_rotated", "", offer_not_rotated},
    {"rope_position_start", "R12,C55,C57", offer_position_start},
    {"rope_position_shift", "C6", offer_position_shift},
    {"rope_position_retained", "C54", offer_retained},
    {"rope_theta", "R13", offer_theta},
    {"rope_twice", "", offer_twice},
    {"rope_of_other_layer", "C45", offer_other_rope},
    {"rope_scaling", "C45", offer_scaling},
    {"rope_magnitude", "C46", offer_magnitude},
    {"rope_dims", "C47", offer_dims},
    {"rope_direction", "", offer_direction},
    {"rope_heads", "R7", offer_heads},
    {"rope_less_precise", "", offer_less_precise},
};

}  // namespace

std::span<const Entry> rope_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
