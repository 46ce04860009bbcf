// Known ways to compute the gated middle of a feed-forward layer wrongly.
#include "ops/rows/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <string_view>
#include <vector>

#include "backend/oracle/oracle_ops.h"
#include "faults/table.h"
#include "num/math64.h"
#include "ops/rows/activation.h"

namespace assay::faults::dictionary {
namespace {

using Activation = double (*)(double x);

double gelu_quick(double x) { return x / (1.0 + num::exp64(-1.702 * x)); }
double relu(double x) { return std::max(x, 0.0); }
double tanh_plain(double x) { return num::tanh64(x); }

struct Named {
  std::string_view name;
  Activation function;
};
constexpr Named kOthers[] = {{"GELU (quick: x sigmoid(1.702 x))", gelu_quick}, {"ReLU", relu}, {"tanh", tanh_plain}};

Named named(ops::ActivationFunction function) {
  const ops::ActivationTraits& traits = ops::traits_of(function);
  return {traits.name, traits.f64};
}
Named right_activation(const Case& c) { return named(c.record<ops::Gate>().activation); }

// Those that models have, and those that only bugs have.
std::vector<Named> all_activations() {
  std::vector<Named> all;
  for (size_t i = 0; i < ops::kNActivationFunctions; ++i) all.push_back(named(static_cast<ops::ActivationFunction>(i)));
  all.insert(all.end(), std::begin(kOthers), std::end(kOthers));
  return all;
}

template <class Formula>  // (gate, up) -> y
RowFunction each(const Case& c, Formula formula) {
  return [&c, formula](int64_t row, double* y) {
    const int64_t run = c.failed.width / c.failed.a_width;  // of outputs that share a gate
    for (int64_t j = 0; j < c.failed.width; ++j) y[j] = formula(c.a(row)[j / run], c.b(row)[j]);
  };
}

void offer_swapped(const Case& c, Sink& out) {
  if (c.failed.a_width != c.failed.width) return;
  const Named right = right_activation(c);
  out.add_rows(fmt::format("gate and up are swapped: {} is taken of up, and gate multiplies", right.name),
               each(c, [f = right.function](double gate, double up) { return f(up) * gate; }));
}

void offer_activation(const Case& c, Sink& out) {
  const Named right = right_activation(c);
  for (const Named& other : all_activations()) {
    if (other.function == right.function) continue;
    out.add_rows(fmt::format("{} in place of {}", other.name, right.name),
                 each(c, [f = other.function](double gate, double up) { return f(gate) * up; }));
  }
}

void offer_order(const Case& c, Sink& out) {
  const Named right = right_activation(c);
  out.add_rows(fmt::format("{} is taken of gate * up; it belongs to gate alone", right.name),
               each(c, [f = right.function](double gate, double up) { return f(gate * up); }));
  out.add_rows(fmt::format("{} is taken of both gate and up; it belongs to gate alone", right.name),
               each(c, [f = right.function](double gate, double up) { return f(gate) * f(up); }));
}

void offer_missing(const Case& c, Sink& out) {
  const Named right = right_activation(c);
  out.add_rows("the product with up is missing",
               each(c, [f = right.function](double gate, double) { return f(gate); }));
  out.add_rows("up alone is passed on: the product with the gate is missing",
               each(c, [](double, double up) { return up; }));
  out.add_rows("up is added to the gate; it multiplies",
               each(c, [f = right.function](double gate, double up) { return f(gate) + up; }));
}

void offer_table(const Case& c, Sink& out) {
  const Named right = right_activation(c);
  out.add_rows(fmt::format("{} comes from a table of half precision (less precise, not wrong)", right.name),
               each(c, [f = right.function](double gate, double up) { return as_f16(f(as_f16(gate))) * up; }));
}

// gate and up of one fused matrix: even and odd outputs instead of the first and the second half,
// and the reverse.
void offer_interleaved(const Case& c, Sink& out) {
  if (c.failed.a_width != c.failed.width) return;
  const Named right = right_activation(c);
  const auto both = [&c](int64_t row, int64_t i) {
    return i < c.failed.width ? c.a(row)[i] : c.b(row)[i - c.failed.width];
  };
  out.add_rows("gate and up are read from alternate outputs of the fused product; they are its halves",
               [=, &c](int64_t row, double* y) {
                 for (int64_t j = 0; j < c.failed.width; ++j)
                   y[j] = right.function(both(row, 2 * j)) * both(row, 2 * j + 1);
               });
}

constexpr Entry kEntries[] = {
    {"gate_swapped", "R16", offer_swapped},
    {"gate_activation", "R15", offer_activation},
    {"gate_order", "", offer_order},
    {"gate_missing", "", offer_missing},
    {"gate_interleaved", "", offer_interleaved},
    {"gate_table", "", offer_table},
};

}  // namespace

std::span<const Entry> gate_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
