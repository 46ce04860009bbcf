// Formulas of ops in float64, over plain rows, with sums in plain order: the oracle runs plans with them, verify single
// ops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/plan/plan.h"

namespace assay::ops {

// Norm weights and biases, which files keep in F32, as doubles.
std::vector<double> vector_of(const Weight& weight);

// One run of x.size() elements; y may be x.
void rms_norm64(std::span<const double> x, std::span<const double> w, double eps, std::span<double> y) noexcept;

// One row of heads at a position; x and y [n_heads * head_dim], y may be x.
void rotate64(const RopeSpec& spec, double position, int64_t n_heads, int64_t head_dim, std::span<const double> x,
              std::span<double> y);

}  // namespace assay::ops
