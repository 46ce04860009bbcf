// Linear of local_op.h. For output r of a token, over blocks b of 32 elements of the inner dimension:
//   |found - y| <= sum_b |w_b| (|step_b| + |dx_b|) + sum_b |m_b| gamma(n) |x_b| + u |y|
// where |.| are 2-norms (Cauchy-Schwarz inside a block: sum |w_j| |e_j| <= |w_b| |e_b|), step_j is the largest error of
// the quantised x_j, and m_j the magnitudes that the format's dot adds up: |w_j|, or |scale w| + |minimum| where a
// format subtracts a minimum.
//
// n, the roundings that a product meets on its way into the result:
//   floats (docs/numerics.md, section 3)   a lane's chain of ceil(ceil(k / 32) / 8) fma, 5 + 3 folds
//   integers (section 2)                   in a block's term 3 (float(I), m G, the sum) or, with two planes, 6: float(I) of the first counts twice and of
//                                          the second once (|q| <= 2 |q + l / 128| and |l| / 128 <= |q + l / 128| where q is not 0), joining them once;
//                                          then a chain of ceil(blocks / 8), 3 folds
//   any order                              k
// and one more each for a bias, for the decoded weight (the reference's own, where a format adds a minimum) and for the
// reference.
//
// step(x), section 1: with d = fl(amax / 127), r = fl(127 / amax), q = rint(fl(x r)): q = x r (1 + t) + e, |t| <= u,
// |e| <= 1/2, so
//   |x - d q| <= 3 u |x| + d / 2;  with the second plane e shrinks to (u + 1/256): l is exact up to half of 1/128 and one fma.
// Another engine's blocks of 32 keep d in f16 (llama.cpp's q8_0): 2^-11 |x| more, and 127 * 2^-25 where d is subnormal
// there; and d times their sum (q8_1), which a minimum is multiplied with: there 2^-11 |x| meets the magnitudes m_j,
// not w_j.
#pragma once

#include "base/thread_pool.h"
#include "bounds/local_op.h"
#include "ops/linear/linear.h"

namespace assay::bounds {

Expected local_linear(const OpInputs& in, const ops::Linear& op, const Declared& declared, base::ThreadPool& pool,
                      const LocalOptions& options);

}  // namespace assay::bounds
