// A matrix product with one thing changed, for the entries about linear ops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "faults/table.h"
#include "quant/activations.h"

namespace assay::faults::dictionary {

// Activations as the multiplication takes them: [n_rows, k].
using Inputs = std::shared_ptr<const std::vector<double>>;

// bits 0: as observed; 8 or 15: quantised over blocks of 32 or 256 by the contract of
// docs/numerics.md.
Inputs quantised_inputs(const Case& c, int bits, int64_t block);
Inputs declared_inputs(const Case& c);  // as the source says it multiplies
int64_t declared_block(const Case& c);  // 32, 256, or 0 where activations are floats
Inputs changed_inputs(const Inputs& x, double (*change)(double));

// y[t, r] = sum_j row(r)[j] x[t, j] + bias[r]
struct LinearRule {
  Inputs x;
  std::function<void(int64_t r, double* w)> row;
  std::vector<double> bias;                                     // empty: none
  std::function<double(int64_t t, int64_t r, double y)> after;  // empty: nothing
};
LinearRule right_linear(const Case& c);
SampleFunction linear_with(const Case& c, LinearRule rule);

inline int64_t depth_of(const Case& c) { return c.failed.a_width; }

}  // namespace assay::faults::dictionary
