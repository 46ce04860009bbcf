// A choice of keys, and attention over it, for local_op.h.
//
// A score s = sum_h w_h relu(d_h), d_h = q_h . k, may be off by
//   |dd_h| <= |dq_h| (|k| + |dk|) + |q_h| |dk| + gamma(head_dim + 1) (|q_h| + |dq_h|) (|k| + |dk|)
//   |ds|   <= sum_h (|w_h| |dd_h| + |dw_h| r_h) + gamma(n_heads + 1) sum_h (|w_h| + |dw_h|) r_h
//   r_h     = relu(d_h) + |dd_h|
// where dk is what the cache rounds, nothing where the source keeps to our contract; relu moves nothing further than
// its argument. A choice is right if every key in it may stand before every key that is not: then it is followed, and
// said where float64 takes another (RouteTie). Else float64's own is expected. A choice of blocks is held by the
// blocks' scores, each off by no more than its keys'.
//
// Attention over a choice is held as attention is (attention_bound.h) over the chosen keys alone.
#pragma once

#include "base/thread_pool.h"
#include "bounds/local_op.h"
#include "ops/attention/choose_keys.h"
#include "ops/attention/sparse_attention.h"

namespace assay::bounds {

Expected local_choice(const OpInputs& in, const ops::ChooseKeys& op, const Declared& declared, base::ThreadPool& pool,
                      const LocalOptions& options);
Expected local_sparse_attention(const OpInputs& in, const ops::SparseAttention& op, const Declared& declared,
                                base::ThreadPool& pool, const LocalOptions& options);

// The positions that a row of a choice names; none where it is no choice that the token at `position` can have.
std::vector<int32_t> positions_in(std::span<const double> row, int64_t position);
// These positions of a history, one after the other.
KvHistory chosen_of(const KvHistory& history, std::span<const int32_t> positions);

}  // namespace assay::bounds
