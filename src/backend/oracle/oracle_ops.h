// The oracle's formulas: each op as its header in ops/ states it, in float64 over plain rows. The oracle runs a Plan
// with them; verify runs single ops with them, and the fault dictionary runs them wrongly on purpose. The matrix
// product stands in matrix.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/plan/plan.h"

namespace assay::backend::oracle {

// Keys and values that one query head sees: position p begins at k + p * k_stride and v + p * v_stride, head_dim
// elements each.
struct HeadCache {
  const double* k = nullptr;
  int64_t k_stride = 0;
  const double* v = nullptr;
  int64_t v_stride = 0;
};

// What is done with scores: ops/attention/attention.h.
struct ScoreRule {
  double scale = 1;
  double softcap = 0;  // 0: none
  std::optional<double> sink{};
};

// One query head over the positions first .. last. shares: at least last - first + 1; keeps the softmax of each
// position. y: a value, must not overlap q.
void attend(std::span<const double> q, const HeadCache& cache, int64_t first, int64_t last, const ScoreRule& rule,
            std::span<double> shares, std::span<double> y) noexcept;
double softcap(double x, double cap) noexcept;  // x where cap is 0

// The parts of attend, for who wants scores or shares otherwise. Scores are scaled.
void attention_scores(std::span<const double> q, const double* k, int64_t k_stride, int64_t first, int64_t last,
                      double scale, std::span<double> scores) noexcept;
void softmax(std::span<double> x, std::optional<double> sink = {}) noexcept;  // x becomes its shares; must not be empty

}  // namespace assay::backend::oracle
