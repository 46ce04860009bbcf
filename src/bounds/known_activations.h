// The activations that a product of weights in this format really multiplies with, where the source
// declares a rounding that can be repeated. The second test of local_op.h is made of them: against
// these only float roundings remain, a hundred times less than half a step.
//
// Our own (docs/numerics.md, section 1): bit for bit. llama.cpp's, from its formats' definitions:
//   blocks of 32 (q8_0, q8_1)   d = fl(amax / 127), q = rint(x 127 / amax), multiplied with d
//   rounded to f16; a format's minimum with
//                               s = f16(d * sum of q) in place of the sum of these
//   blocks of 256 (q8_K)        q = rint(-127 x / max), max the element of largest magnitude;
//   multiplied with 1 / (-127 / max) f16, bf16 weights           x rounded to that type
// Its machines differ in whether they multiply or divide, so an x within a few roundings of the
// middle between two steps may go either way.
#pragma once

#include <cstdint>
#include <vector>

#include "bounds/local_op.h"
#include "quant/format.h"

namespace assay::bounds {

inline constexpr int64_t kNormBlock = 32;  // elements over which bounds take norms
inline int64_t n_norms(int64_t k) { return (k + kNormBlock - 1) / kNormBlock; }

struct KnownActivations {
  std::vector<double> values;    // [n, k]; empty: not known
  std::vector<double> doubtful;  // [n, n_norms(k)]: norm of what values may be off by; empty: by nothing
  // Where the source multiplies a format's minimum with a stored sum: [n, n_norms(k)] of blocks
  // of 32. Empty: it takes the sum of values.
  std::vector<double> sum_offset;    // stored sum - sum of values
  std::vector<double> sum_doubtful;  // by how much that may be off
};

// Not known where the inputs carry errors or are no floats, and where a block has no finite scale.
KnownActivations known_activations(const Rows& x, const quant::Format& format, const Declared& declared);

}  // namespace assay::bounds
