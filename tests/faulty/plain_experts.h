// The faulty engine's mixtures of experts: which experts a token goes to, their products and their sum, in plain loops.
#pragma once

#include <span>
#include <vector>

#include "faulty/fault.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/route.h"

namespace assay::faults {

// One token. bias, scales: empty where there are none. y [2 n_used]: weights, then experts.
void route_plain(const ops::Route& op, std::span<const float> logits, std::span<const float> bias,
                 std::span<const float> scales, Fault fault, float* y);

// One token. w: all rows of all experts, decoded; bias likewise or empty; routes: as route_plain leaves them, or empty.
void expert_linear_plain(const ops::ExpertLinear& op, std::span<const float> w, std::span<const float> bias,
                         std::span<const float> x, std::span<const float> routes, float* y);

// One token. y [d].
void expert_sum_plain(const ops::ExpertSum& op, std::span<const float> x, std::span<const float> routes, Fault fault,
                      std::span<float> y);

}  // namespace assay::faults
