// Attention of local_op.h. One query head, keys j with scores s_j = scale q.k_j, shares p_j, and
// y = sum p_j v_j. Norms are 2-norms.
//
// Scores. The cache's rounding e of k and an error of q make them unsure:
//   U_j = scale (|q| |e_j| + |dq| |k_j + e_j|)
// In our own order they are chains of fma. Each step rounds its partial sum once (running error
// analysis, Higham section 3.3), scale and the product by it round once more:
//   |ds_j| <= U_j + u (sum_i scale |q_0 k_j0 + .. + q_i k_ji| + 2 |s_j|) + gamma(head_dim + 3) U_j
// and in any order U_j + gamma(head_dim + 3) scale |q| |k_j + e_j|.
//
// Weights exp(s - m). Subtracting rounds once, u (M - s_j) in all over the segments' maxima, which
// only grow; exp is good to 2 u (docs/numerics.md, section 4), once for the weight and once for
// every merge. The computed weight is w_j e^t with |t| <= d_j,
//   d_j = |ds_j| + u (M - s_j + 2 max |ds|) + 2 u (n_segments + 1)
// Since sum p_j (v_j - y) = 0, the shares' errors move y by exactly
//   (1/Z) sum p_j (e^t_j - 1) (v_j - y),   Z = sum p_j e^t_j
// so with dv_j the cache's rounding of v and v's own error
//   |dy| <= (1/Z_min) [sum p_j (e^d_j - 1) |v_j - y| + sum p_j e^d_j |dv_j|]
//           + N + gamma(n_l + 1) |y|
// The first term is never more than max (|v_j - y| + |dv_j|): the computed y is a mean of the v_j
// too. N, the roundings of the sum: one of every partial sum of a segment (256 keys),
// u sum_i |p_0 v_0 + .. + p_i v_i|, and 2 of the magnitudes for each merge. n_l: lanes of 8 keys
// and 5 folds, merges likewise (docs/numerics.md, section 5). In any order both are gamma(keys).
//
// The cache's rounding: f16 2^-11 |x| + 2^-25; q8_0 as the activations of linear_bound.h with one
// plane, the scale in f16. llama.cpp without flash attention (activations_f16) rounds q and the
// shares to f16 as well, where the cache is f16.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "bounds/local_op.h"
#include "ops/attention/attention.h"

namespace assay::bounds {

// Norms of the keys of a history, one head a position, and of what may be wrong with each: as stored where that is
// known, else what the cache rounds.
struct KeyNorms {
  std::vector<double> norm, error;
};
KeyNorms key_norms(const ops::Plan& plan, const KvHistory& history, int32_t layer, const Declared& declared,
                   base::ThreadPool& pool);

Expected local_attention(const OpInputs& in, const ops::Attention& op, const Declared& declared, base::ThreadPool& pool,
                         const LocalOptions& options);

}  // namespace assay::bounds
