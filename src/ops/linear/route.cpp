// See route.h. One source for both arithmetics: they differ in the scores alone.
#include "ops/linear/route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "num/activations.h"
#include "num/lanes.h"
#include "num/math64.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"
#include "ops/rows/activation.h"

namespace assay::ops {
namespace {

float exp_of(float x) noexcept { return num::exp(x); }
double exp_of(double x) noexcept { return num::exp64(x); }

float sum_of(const float* x, int64_t n) noexcept {
  num::Lanes32 sum;
  for (int64_t i = 0; i < n; ++i) sum.add(i, x[i]);
  return sum.fold();
}
double sum_of(const double* x, int64_t n) noexcept {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

template <class T>
void softmax(const T* x, int64_t n, T* y) noexcept {
  const T m = *std::max_element(x, x + n);
  for (int64_t i = 0; i < n; ++i) y[i] = exp_of(x[i] - m);
  const T total = sum_of(y, n);
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] / total;
}

// Weights of Gating::sparse_mixer.
template <class T>
void share_among_near(const Route& op, const T* logits, int64_t n, const int32_t* chosen, T* weights) noexcept {
  const T near = std::is_same_v<T, float> ? static_cast<T>(static_cast<float>(op.near)) : static_cast<T>(op.near);
  std::array<T, kExpertsMax> e;
  for (int64_t rank = 0; rank < op.n_used; ++rank) {
    const T m = logits[chosen[rank]];
    for (int64_t i = 0; i < n; ++i) {
      const T s = logits[i], larger = std::fabs(s) > m ? std::fabs(s) : m;
      const bool is_taken = std::find(chosen, chosen + rank, static_cast<int32_t>(i)) != chosen + rank;
      e[static_cast<size_t>(i)] = is_taken || (m - s) / larger > near ? T{0} : exp_of(s - m);
    }
    weights[rank] = e[static_cast<size_t>(chosen[rank])] / sum_of(e.data(), n);
  }
}

float sigmoid_of(float x) noexcept { return num::sigmoid(x); }
double sigmoid_of(double x) noexcept { return sigmoid64(x); }
float root_softplus_of(float x) noexcept { return std::sqrt(num::softplus(x)); }
double root_softplus_of(double x) noexcept { return std::sqrt(softplus64(x)); }

template <class T>
void scores_of(Gating gating, const T* logits, int64_t n, T* scores) noexcept {
  if (gating == Gating::softmax) return softmax(logits, n, scores);
  for (int64_t i = 0; i < n; ++i) {
    scores[i] = gating == Gating::sigmoid         ? sigmoid_of(logits[i])
                : gating == Gating::sqrt_softplus ? root_softplus_of(logits[i])
                                                  : logits[i];
  }
}

// The n_chosen largest of n, largest first, the lower index first among equals; -infinity is never chosen before
// another.
template <class T>
void choose(const T* x, int64_t n, int64_t n_chosen, int32_t* chosen) noexcept {
  std::array<int32_t, kExpertsMax> order;
  for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  std::partial_sort_copy(order.begin(), order.begin() + n, chosen, chosen + n_chosen,
                         [x](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
}

// Takes the experts of all but the best groups out of the choice.
template <class T>
void keep_groups(const Route& op, int64_t n_experts, T* choice) noexcept {
  const int64_t size = n_experts / op.n_groups;
  std::array<T, kExpertsMax> group;
  for (int64_t g = 0; g < op.n_groups; ++g) {
    std::array<int32_t, kExpertsMax> best;
    const int64_t n_best = op.group_by_best || size == 1 ? 1 : 2;
    choose(choice + g * size, size, n_best, best.data());
    group[static_cast<size_t>(g)] = choice[g * size + best[0]];
    if (n_best == 2) group[static_cast<size_t>(g)] += choice[g * size + best[1]];
  }
  std::array<int32_t, kExpertsMax> kept;
  choose(group.data(), op.n_groups, op.n_groups_used, kept.data());
  for (int64_t g = 0; g < op.n_groups; ++g) {
    if (std::find(kept.begin(), kept.begin() + op.n_groups_used, static_cast<int32_t>(g)) !=
        kept.begin() + op.n_groups_used)
      continue;
    std::fill_n(choice + g * size, size, -std::numeric_limits<T>::infinity());
  }
}

template <class T>
void route_row(const Route& op, const T* logits, int64_t n_experts, const float* bias, const float* expert_scales,
               T* y) noexcept {
  std::array<T, kExpertsMax> scores, choice;
  std::array<int32_t, kExpertsMax> chosen;
  scores_of(op.gating, logits, n_experts, scores.data());
  bool poisoned = false;
  for (int64_t i = 0; i < n_experts; ++i) {
    const auto at = static_cast<size_t>(i);
    choice[at] = bias == nullptr ? scores[at] : scores[at] + static_cast<T>(bias[i]);
    poisoned = poisoned || !(choice[at] == choice[at]);
  }
  if (poisoned) {
    for (int64_t i = 0; i < op.n_used; ++i)
      y[i] = std::numeric_limits<T>::quiet_NaN(), y[op.n_used + i] = static_cast<T>(i);
    return;
  }
  if (op.n_groups > 1) keep_groups(op, n_experts, choice.data());
  choose(choice.data(), n_experts, op.n_used, chosen.data());
  for (int64_t i = 0; i < op.n_used; ++i) {
    y[i] = scores[static_cast<size_t>(chosen[static_cast<size_t>(i)])];
    y[op.n_used + i] = static_cast<T>(chosen[static_cast<size_t>(i)]);
  }
  if (op.gating == Gating::softmax_of_chosen) {
    std::array<T, kExpertsMax> of_chosen;
    std::copy_n(y, op.n_used, of_chosen.begin());
    softmax(of_chosen.data(), op.n_used, y);
  }
  if (op.gating == Gating::sparse_mixer) share_among_near(op, logits, n_experts, chosen.data(), y);
  T sum = 0;
  for (int64_t i = 0; i < op.n_used; ++i) sum = sum + y[i];
  for (int64_t i = 0; i < op.n_used; ++i) {
    if (op.normalise) y[i] = y[i] / (sum + static_cast<T>(op.least_sum));
    y[i] = y[i] * (std::is_same_v<T, float> ? static_cast<T>(static_cast<float>(op.scale)) : static_cast<T>(op.scale));
    if (expert_scales != nullptr) y[i] = y[i] * static_cast<T>(expert_scales[chosen[static_cast<size_t>(i)]]);
  }
}

template <class T>
void route_rows(const Route& op, const HostRows<T>& rows, int64_t begin, int64_t end) noexcept {
  for (int64_t i = begin; i < end; ++i) {
    route_row(op, rows.row(op.logits, i), rows.width(op.logits), rows.small(op.bias), rows.small(op.expert_scales),
              rows.row(op.y, i));
  }
}

}  // namespace

void Route::check(const CheckScope& s) const {
  if (s.domain(logits).is_routed()) s.refuse("routes of rows that are routed");
  const int64_t n_experts = s.width(logits);
  if (n_experts < 1 || n_experts > kExpertsMax)
    s.refuse(std::to_string(n_experts) + " experts (1 to " + std::to_string(kExpertsMax) + " are served)");
  if (n_used < 1 || n_used > n_experts)
    s.refuse(std::to_string(n_used) + " used of " + std::to_string(n_experts) + " experts");
  s.expect_vector(bias, n_experts, "biases of the choice");
  s.expect_vector(expert_scales, n_experts, "scales of the experts");
  s.expect(s.width(y), 2 * n_used, "columns of the routes");
  const bool fits = n_groups >= 1 && n_groups_used >= 1 && n_groups_used <= n_groups && n_experts % n_groups == 0 &&
                    n_groups_used * (n_experts / n_groups) >= n_used;
  if (!fits)
    s.refuse(std::to_string(n_groups_used) + " used of " + std::to_string(n_groups) + " groups of " +
             std::to_string(n_experts) + " experts");
  if (!std::isfinite(scale)) s.refuse("a scale that is no number");
  if (!std::isfinite(near)) s.refuse("a distance of near logits that is no number");
}

void Route::shard(ShardScope& s) const {
  Route part = *this;
  part.logits = s.whole_of(logits), part.bias = s.whole_weight(bias),
  part.expert_scales = s.whole_weight(expert_scales), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork Route::work(const WorkScope& s) const { return {.bytes = s.weight_bytes(bias) + s.weight_bytes(expert_scales)}; }

void Route::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  route_rows(*this, rows, begin, end);
}
void Route::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  route_rows(*this, rows, begin, end);
}

}  // namespace assay::ops
