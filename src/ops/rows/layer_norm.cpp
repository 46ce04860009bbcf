// See layer_norm.h.
#include "ops/rows/layer_norm.h"

#include <cmath>
#include <string>

#include "num/lanes.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void layer_norm_ref(const float* x, const float* w, const float* bias, float eps, int64_t d, float* y) noexcept {
  num::Lanes32 sum, squares;  // element j goes to lane j % 32
  for (int64_t j = 0; j < d; ++j) sum.add(j, x[j]);
  const float mean = sum.fold() / static_cast<float>(d);
  for (int64_t j = 0; j < d; ++j) squares.fma(j, x[j] - mean, x[j] - mean);
  const float r = 1.0f / std::sqrt(squares.fold() / static_cast<float>(d) + eps);
  for (int64_t j = 0; j < d; ++j) {
    float value = (x[j] - mean) * r;
    if (w != nullptr) value = value * w[j];
    y[j] = bias == nullptr ? value : value + bias[j];
  }
}

void LayerNorm::check(const CheckScope& s) const {
  if (d <= 0) s.refuse("runs of " + std::to_string(d) + " elements");
  s.expect_vector(w, by_column ? s.width(x) : d, "norm weights");
  s.expect_vector(bias, by_column ? s.width(x) : d, "norm biases");
  s.expect(s.width(x) % d, 0, "elements left over after whole runs");
  s.expect(s.width(y), s.width(x), "columns");
}

void LayerNorm::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.runs_of(x, d);
  const ColumnRanges of_weights = by_column ? ranges : ColumnRanges{};
  LayerNorm part = *this;
  part.x = s.own_or_whole(x, ranges);
  part.w = s.weight_elements(w, of_weights), part.bias = s.weight_elements(bias, of_weights);
  part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork LayerNorm::work(const WorkScope& s) const {
  return {.bytes = s.n_rows(y) > 0 ? s.weight_bytes(w) + s.weight_bytes(bias) : 0};
}

void LayerNorm::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < rows.width(y); j += d) {
      const auto own = [&](WeightId id) { return id == kNone ? nullptr : rows.small(id) + (by_column ? j : 0); };
      layer_norm_ref(rows.row(x, i) + j, own(w), own(bias), eps, d, rows.row(y, i) + j);
    }
  }
}

void LayerNorm::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const auto n = static_cast<double>(d);
  const float *weights = rows.small(w), *biases = rows.small(bias);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t run = 0; run < rows.width(y); run += d) {
      const double* from = rows.row(x, i) + run;
      double* to = rows.row(y, i) + run;
      double mean = 0, variance = 0;
      for (int64_t j = 0; j < d; ++j) mean += from[j] / n;
      for (int64_t j = 0; j < d; ++j) variance += (from[j] - mean) * (from[j] - mean) / n;
      const double root = std::sqrt(variance + static_cast<double>(eps));
      for (int64_t j = 0; j < d; ++j) {
        const int64_t k = by_column ? run + j : j;
        to[j] = (from[j] - mean) / root * (weights == nullptr ? 1.0 : static_cast<double>(weights[k])) +
                (biases == nullptr ? 0.0 : static_cast<double>(biases[k]));
      }
    }
  }
}

}  // namespace assay::ops
