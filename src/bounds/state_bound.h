// Ops with a state (ops/state/state.h), held as local_op.h holds the others. What a right implementation may be off by
// depends on all tokens before, so a memory keeps, for every sequence, the state in float64 as it follows from the
// observed inputs, and how far a float32 state may be from it:
//   causal_conv     its rows are inputs: gamma(K + 2) (sum |w| |x| + |bias|) + sum |w| dx
//   selective_scan  by element: e < 1 shrinks what was off, and each token adds the roundings of e, u b and the sum
//   delta_rule      by column of S, in the 2-norm: |I - b k k'| <= max(1, |1 - b |k|^2|), so that what was off does not
//   grow where decays and strengths
//                   are what they should be; a bound by elements would double with every token
// and the state of the float64 chain.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "bounds/local_op.h"

namespace assay::bounds {

struct StateMemory {  // of one op and sequence; empty before the first token
  std::vector<double> state,
      error;  // error: of each element (causal_conv, selective_scan), or of each column (delta_rule)
  std::vector<double> chain;
};

struct StateInputs {
  const ops::Plan& plan;
  const ops::Op& op;
  std::vector<Rows> observed, chain;   // its inputs, in the order of ops::values_of; chain: empty where there is none
  std::span<const int32_t> sequences;  // of each row
};

bool keeps_state(const ops::Op& op);
// memories: by sequence; they go on to after the batch. chain_y: the chain's result, where inputs.chain has any.
Expected local_state(const StateInputs& in, const Declared& declared, std::vector<StateMemory>& memories,
                     base::ThreadPool& pool, std::vector<double>* chain_y);

}  // namespace assay::bounds
