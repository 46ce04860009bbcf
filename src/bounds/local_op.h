// One op by itself, in float64 from given inputs, with an a-priori bound of the rounding error that a right
// implementation can make (running error analysis). |found - y| <= bound for every element, or the op is wrong.
//
// With u the declared unit roundoff, gamma(n) = n u / (1 - n u), d* the error that the inputs themselves carry (zero
// where they were observed), and step(x) half the quantisation step of x's block:
//   linear     linear_bound.h: (gamma(n) |w| |x| + |w| (step(x) + dx)), |w| |x| by Cauchy-Schwarz over every 32 elements of the row
//   attention  attention_bound.h: scores: gamma |q| |k| scale + rounding of k in the cache's type; from them the shares; values likewise
//   others     a few u of the magnitudes that are added, as local_op.cpp derives beside each formula
// Where a source follows our own contract its quantisation is known to the bit. Then there is a second, much tighter
// test, "as declared": the op in float64 from the inputs as they are after quantisation, against the float roundings
// alone. Source of the method: Higham 2002, Accuracy and Stability of Numerical Algorithms, chapters 3 and 4.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ops/plan/plan.h"
#include "trace/dump.h"

namespace assay::bounds {

using trace::Declared;

// [n, width] row-major. error: empty (exact inputs), or as many upper bounds of |value - true value|.
struct Rows {
  int64_t n = 0, width = 0;
  std::span<const double> values;
  std::span<const double> error;
};

// Keys and values of one layer and sequence as KvStore was given them, before the cache's rounding: [n_positions,
// n_kv_heads * head_dim], values [n_positions, n_kv_heads * v_dim]. Where values lie in the keys, v is that part of k,
// and its errors and stored values are those of the keys.
struct KvHistory {
  std::vector<double> k, v;
  std::vector<double> k_error, v_error;    // as Rows::error
  std::vector<double> k_stored, v_stored;  // as a cache of the declared types gives them back; empty: not known
  int64_t width = 0, v_width = 0;
  int64_t n_positions() const noexcept { return width == 0 ? 0 : static_cast<int64_t>(k.size()) / width; }
};

// Of an op whose values have not all the same rows (experts: ops/plan/row_domain.h) the rows of a token stand side by
// side, here and in what is expected: as one row of all ranks. How many rows of a value are one so.
int64_t rows_joined(const ops::Plan& plan, const ops::Op& op, ops::ValueId id) noexcept;

struct OpInputs {
  const ops::Plan& plan;
  const ops::Op& op;
  Rows a, b;                        // the values it reads, in the order of ops::values_of; b only where there are two
  std::span<const int32_t> tokens;  // of each row of the output
  std::span<const int32_t> positions;
  std::span<const KvHistory* const> history;  // ops that read the cache: of each row of the output
  std::span<const double> found = {};         // what was found, where it was: a choice within rounding is followed
};

// A choice of experts, or of keys, that rounding alone decides: what was found was followed.
struct RouteTie {
  int64_t row = 0, rank = 0;
  int32_t found = 0, exact = 0;  // experts; positions
  double margin = 0;             // of the one that float64 takes, before the one that was taken
  double bound = 0;              // how far rounding may have moved the two
  bool of_chain = false;  // it is the float64 chain that takes another; bound: how far its scores lie from those found
};

struct Expected {
  std::vector<double> y;      // [n rows of the output, width]
  std::vector<double> bound;  // as many
  // The test "as declared"; empty where it does not apply.
  std::vector<double> declared_y, declared_bound;
  std::vector<RouteTie> ties;  // Route and ChooseKeys alone
};

// Another set of inputs for the same op, evaluated without bounds in the same pass over the weights: the float64
// chain's.
struct ChainOp {
  Rows a, b;
  std::span<const KvHistory* const> history;
  std::vector<double> y;  // the result
};

struct LocalOptions {
  bool as_declared = true;
  ChainOp* chain = nullptr;
  int64_t first_column = 0, n_columns = -1;  // Linear: only these outputs of each row; -1: to the last
};

// Any op with a bound but KvStore and those with a state (state_bound.h); Error(unsupported) for others. SelectOutputs:
// a holds the rows that were selected.
Expected local_op(const OpInputs& in, const Declared& declared, base::ThreadPool& pool,
                  const LocalOptions& options = {});

// Fills k_stored and v_stored for the positions that lack them, where every position was observed and the source
// declares our own contract.
void read_back(KvHistory& history, const ops::CacheLayer& layer, const Declared& declared);

}  // namespace assay::bounds
