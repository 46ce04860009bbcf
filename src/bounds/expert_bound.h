// Ops of mixtures of experts, of local_op.h.
//
// Routing is a choice, so its bound is one of choices: with d_k how far a score (and what a bias adds to it) may be
// off, the experts that were found are right if no other one beats them by more than both d. Then the weights are
// judged for the experts that were found, in their order, and everything that follows goes on with them: a router's tie
// within rounding is no fault. Where the found experts are not right, the expected ones stand in their place, a whole
// number away. A score's d: softmax |log p_k| moves by dx_k + sum p dx, and by the roundings of x - m, exp (2 u), the
// sum and the quotient; sigmoid by dx / 4 and 5 u; the square root of softplus by dx / 2 and 14 u. A logit of
// Gating::sparse_mixer is its own score; whether another one is near it may be on either side of the limit within
// rounding, and then the sum has both ends.
//
// Products of experts are held as local_linear holds a product, expert by expert.
#pragma once

#include "base/thread_pool.h"
#include "bounds/local_op.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/route.h"

namespace assay::bounds {

Expected local_route(const OpInputs& in, const ops::Route& op, const Declared& declared, base::ThreadPool& pool,
                     const LocalOptions& options);
Expected local_expert_linear(const OpInputs& in, const ops::ExpertLinear& op, const Declared& declared,
                             base::ThreadPool& pool, const LocalOptions& options);

}  // namespace assay::bounds
