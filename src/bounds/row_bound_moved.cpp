// See row_bound.h: ops that bring rows from elsewhere.
#include <cmath>
#include <vector>

#include "bounds/row_bound.h"
#include "quant/format.h"

namespace assay::bounds {

// decode(row)_j * scale: scale rounded to float and the product; a format's own rounding where it
// is decoded otherwise.
void bound_row(const RowScope& s, const ops::Embed& op, int64_t i, Out out) {
  const tensor::TensorView& table = s.in.plan.weights[at(op.table)].view;
  std::vector<float> decoded(out.y.size());
  quant::decode_row(*quant::find_format(table.dtype), table.row(s.in.tokens[at(i)]),
                    static_cast<int64_t>(decoded.size()), decoded.data());
  const double n = (op.scale == 1.0 ? 0 : 2) + (s.declared.own_sums ? 0 : 2);
  for (size_t j = 0; j < decoded.size(); ++j) {
    out.y[j] = static_cast<double>(decoded[j]) * op.scale;
    out.bound[j] = gamma(n, s.u) * std::fabs(out.y[j]) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::EmbedPosition& op, int64_t i, Out out) {
  const tensor::TensorView& table = s.in.plan.weights[at(op.table)].view;
  std::vector<float> decoded(out.y.size());
  quant::decode_row(*quant::find_format(table.dtype), table.row(op.row >= 0 ? op.row : s.in.positions[at(i)]),
                    static_cast<int64_t>(decoded.size()), decoded.data());
  for (size_t j = 0; j < decoded.size(); ++j) {
    out.y[j] = static_cast<double>(decoded[j]);
    out.bound[j] = (s.declared.own_sums ? 0 : gamma(2, s.u)) * std::fabs(out.y[j]) + s.tiny;
  }
}

// Copies.
void bound_row(const RowScope& s, const ops::Slice& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  const size_t n = at(op.n_runs), from = x.values.size() / n, to = out.y.size() / n;
  for (size_t j = 0; j < out.y.size(); ++j) {
    const size_t k = j / to * from + at(op.first) + j % to;
    out.y[j] = x.values[k];
    out.bound[j] = x.e(k) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::Join& op, int64_t i, Out out) {
  const Row a = row_of(s.in.a, i), b = row_of(s.in.b, i);
  const size_t n = at(op.n_runs), of_a = a.values.size() / n, to = out.y.size() / n, of_b = to - of_a,
               stride_b = b.values.size() == of_b ? 0 : of_b;
  for (size_t j = 0; j < out.y.size(); ++j) {
    const size_t run = j / to, k = j % to;
    const bool is_a = k < of_a;
    const size_t from = is_a ? run * of_a + k : run * stride_b + k - of_a;
    out.y[j] = is_a ? a.values[from] : b.values[from];
    out.bound[j] = (is_a ? a.e(from) : b.e(from)) + s.tiny;
  }
}

void bound_row(const RowScope& s, const ops::SelectOutputs&, int64_t i, Out out) {
  const Row a = row_of(s.in.a, i);
  for (size_t j = 0; j < out.y.size(); ++j) {
    out.y[j] = a.values[j];
    out.bound[j] = a.e(j);
  }
}

}  // namespace assay::bounds
