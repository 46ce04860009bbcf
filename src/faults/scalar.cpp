// Known ways to get the ops without weights wrong that work number by number, and those that cut rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "faults/table.h"
#include "num/math64.h"
#include "ops/rows/activate.h"
#include "ops/rows/activation.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_by_position.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"

namespace assay::faults::dictionary {
namespace {

template <class Formula>  // x -> y
RowFunction each(const Case& c, Formula formula) {
  return [&c, formula](int64_t row, double* y) { std::transform(c.a(row), c.a(row) + c.failed.width, y, formula); };
}

void offer_factor(const Case& c, Sink& out) {
  const double factor = c.record<ops::Scale>().factor;
  const auto with = [&](const char* what, double by) {
    out.add_rows(fmt::format("the scale {:.6g} is {}", factor, what), each(c, [by](double x) { return by * x; }));
  };
  with("missing", 1);
  with("divided by; it multiplies", 1 / factor);
  with("applied twice", factor * factor);
  if (factor > 0) with("taken as its root", std::sqrt(factor));
}

void offer_by_position(const Case& c, Sink& out) {
  const auto& op = c.record<ops::ScaleByPosition>();
  out.add_rows("queries are not scaled by their position", each(c, [](double x) { return x; }));
  for (const int64_t by : {1, -1}) {
    out.add_rows(fmt::format("the scale is of the position {:+}", by), [&c, &op, by](int64_t row, double* y) {
      const double scale = ops::position_scale(op.beta, op.period, op.offset, c.position(row) + by);
      for (int64_t j = 0; j < c.failed.width; ++j) y[j] = scale * c.a(row)[j];
    });
  }
}

void offer_softcap(const Case& c, Sink& out) {
  const double cap = c.record<ops::Softcap>().cap;
  out.add_rows(fmt::format("the cap of {:g} is missing", cap), each(c, [](double x) { return x; }));
  out.add_rows(fmt::format("x tanh(x / {0:g}) in place of {0:g} tanh(x / {0:g})", cap),
               each(c, [cap](double x) { return x * num::tanh64(x / cap); }));
  out.add_rows(fmt::format("the product with the cap of {:g} is missing", cap),
               each(c, [cap](double x) { return num::tanh64(x / cap); }));
  out.add_rows(fmt::format("the division by the cap of {:g} is missing", cap),
               each(c, [cap](double x) { return cap * num::tanh64(x); }));
  out.add_rows(fmt::format("cut off at {:g}; the cap is smooth", cap),
               each(c, [cap](double x) { return std::clamp(x, -cap, cap); }));
  for (const double other : {50.0, 30.0, 15.0}) {
    if (other != cap)
      out.add_rows(fmt::format("capped at {:g} in place of the file's {:g}", other, cap),
                   each(c, [other](double x) { return other * num::tanh64(x / other); }));
  }
}

void offer_activation(const Case& c, Sink& out) {
  const ops::ActivationTraits& right = ops::traits_of(c.record<ops::Activate>().activation);
  for (size_t i = 0; i < ops::kNActivationFunctions; ++i) {
    const ops::ActivationTraits& other = ops::traits_of(static_cast<ops::ActivationFunction>(i));
    if (other.function != right.function)
      out.add_rows(fmt::format("{} in place of {}", other.name, right.name), each(c, other.f64));
  }
  out.add_rows(fmt::format("ReLU in place of {}", right.name), each(c, [](double x) { return std::max(x, 0.0); }));
}

// gpt-oss: g sigmoid(alpha g) (u + 1), both cut off at a limit.
struct ClampedRule {
  double alpha = 0, limit = 0, added = 1;
  bool swapped = false, up_clamped = true;
};

void offer_clamped(const Case& c, Sink& out) {
  const auto& op = c.record<ops::ClampedGate>();
  const auto with = [&](std::string text, ClampedRule rule) {
    out.add_rows(std::move(text), [&c, rule](int64_t row, double* y) {
      for (int64_t j = 0; j < c.failed.width; ++j) {
        const double g = std::min(rule.swapped ? c.b(row)[j] : c.a(row)[j], rule.limit),
                     u = rule.swapped ? c.a(row)[j] : c.b(row)[j];
        y[j] = g * ops::sigmoid64(rule.alpha * g) *
               ((rule.up_clamped ? std::clamp(u, -rule.limit, rule.limit) : u) + rule.added);
      }
    });
  };
  with("gate and up are swapped", {op.alpha, op.limit, 1, true});
  with("the 1 that is added to up is missing", {op.alpha, op.limit, 0});
  with(fmt::format("the factor {:g} in the sigmoid is missing", op.alpha), {1, op.limit});
  with(fmt::format("gate and up are not cut off at {:g}", op.limit), {op.alpha, HUGE_VAL, 1, false, false});
  with(fmt::format("up is not cut off at {:g}", op.limit), {op.alpha, op.limit, 1, false, false});
  with("SiLU(gate) up in place of the clamped gate", {1, HUGE_VAL, 0, false, false});
}

// Other columns of the same runs, and runs of another number.
void offer_columns(const Case& c, Sink& out) {
  const auto& op = c.record<ops::Slice>();
  const int64_t stride = c.failed.a_width / op.n_runs, width = c.failed.width / op.n_runs;
  const auto with = [&](std::string text, int64_t n_runs, int64_t first) {
    const int64_t from = c.failed.a_width / n_runs, to = c.failed.width / n_runs;
    if (first < 0 || first + to > from) return;
    out.add_rows(std::move(text), [&c, from, to, first](int64_t row, double* y) {
      for (int64_t j = 0; j < c.failed.width; ++j) y[j] = c.a(row)[j / to * from + first + j % to];
    });
  };
  for (const int64_t first :
       {int64_t{0}, width, 2 * width, stride - width, stride - 2 * width, op.first + 1, op.first - 1}) {
    if (first != op.first)
      with(fmt::format("columns from {} on are taken; the part begins at {}: the parts are split in the wrong order",
                       first, op.first),
           op.n_runs, first);
  }
  if (op.n_runs > 1)
    with("the parts are taken for blocks of the whole row; they alternate head by head", 1, op.first * op.n_runs);
  for (const int64_t n_runs : {2, 4, 8, 16}) {
    if (op.n_runs == 1 && c.failed.a_width % n_runs == 0 && c.failed.width % n_runs == 0)
      with(fmt::format("the parts are taken to alternate in {} runs; they are blocks of the whole row", n_runs), n_runs,
           op.first / n_runs);
  }
}

constexpr Entry kScale[] = {{"scale_factor", "", offer_factor}};
constexpr Entry kByPosition[] = {{"scale_position", "", offer_by_position}};
constexpr Entry kSoftcap[] = {{"softcap", "C52", offer_softcap}};
constexpr Entry kActivate[] = {{"activation", "R15", offer_activation}};
constexpr Entry kClamped[] = {{"gate_clamped", "", offer_clamped}};
constexpr Entry kSlice[] = {{"slice_columns", "", offer_columns}};

}  // namespace

std::span<const Entry> scale_entries() noexcept { return kScale; }
std::span<const Entry> scale_by_position_entries() noexcept { return kByPosition; }
std::span<const Entry> softcap_entries() noexcept { return kSoftcap; }
std::span<const Entry> activate_entries() noexcept { return kActivate; }
std::span<const Entry> clamped_gate_entries() noexcept { return kClamped; }
std::span<const Entry> slice_entries() noexcept { return kSlice; }

}  // namespace assay::faults::dictionary
