// What each op of rows computes in float64 and how far rounding may carry it: bound_row() makes row i of `out` from the
// op's inputs. One overload an op; local_op.cpp runs them over all rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.h"
#include "bounds/local_op.h"
#include "bounds/rounding.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/embed/embed_position.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/sparse_gate.h"
#include "ops/rows/activate.h"
#include "ops/rows/activation.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
#include "ops/rows/clamp.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/l2_norm.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/match_magnitude.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_by_position.h"
#include "ops/rows/scale_columns.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "ops/rows/xielu.h"

namespace assay::bounds {

// Rows as one op sees them: error is zero where it was not given.
struct Row {
  std::span<const double> values, error;
  double e(size_t j) const { return error.empty() ? 0 : error[j]; }
};
inline Row row_of(const Rows& rows, int64_t i) {
  const size_t begin = at(i * rows.width), n = at(rows.width);
  return {rows.values.subspan(begin, n), rows.error.empty() ? rows.error : rows.error.subspan(begin, n)};
}

struct Out {
  std::span<double> y, bound;
};

// What the rows of one op have in common. Both references must outlive it.
struct RowScope {
  RowScope(const OpInputs& inputs, const Declared& by)
      : in(inputs), declared(by), u(unit(by)), tiny(bounds::tiny(by)) {}

  const OpInputs& in;
  const Declared& declared;
  double u, tiny;                       // the source's unit roundoff, and what underflow loses
  std::vector<double> weights, biases;  // of a norm or of columns; none: all 1, all 0
};

// An activation function and how far it is off where x is off by dx at most. One bound a function of
// ops/rows/activation.h.
struct ActivationBound {
  double y, error;
};
ActivationBound activation_bound(const RowScope& s, ops::ActivationFunction function, double x, double dx);

void bound_row(const RowScope& s, const ops::Embed& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::RmsNorm& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Rope& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Add& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Gate& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Scale& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::ScaleColumns& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::AddColumns& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::SparseGate& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::MatchMagnitude& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::L2Norm& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::ScaleByPosition& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Softcap& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Clamp& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Activate& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Xielu& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::EmbedPosition& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::LayerNorm& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::ExpertSum& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::ExpertScale& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::ClampedGate& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Slice& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::Join& op, int64_t i, Out out);
void bound_row(const RowScope& s, const ops::SelectOutputs& op, int64_t i, Out out);

}  // namespace assay::bounds
