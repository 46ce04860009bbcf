// See expert_bound.h.
#include "bounds/expert_bound.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/index.h"
#include "bounds/linear_bound.h"
#include "bounds/rounding.h"
#include "num/math64.h"
#include "ops/plan/float64.h"
#include "ops/plan/host_rows.h"
#include "ops/rows/activation.h"

namespace assay::bounds {
namespace {

// A router's scores in float64, what is chosen by, and how far each may be off.
struct Scores {
  std::vector<double> score, score_error, choice, choice_error;
};

// Softmax of logits that may be off by e.
void softmax_scores(std::span<const double> x, std::span<const double> e, double u, std::vector<double>& p,
                    std::vector<double>& error) {
  const double m = *std::max_element(x.begin(), x.end());
  p.assign(x.size(), 0), error.assign(x.size(), 0);
  double sum = 0, moved = 0, spread = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += p[i] = num::exp64(x[i] - m);
  for (size_t i = 0; i < x.size(); ++i) {
    p[i] /= sum;
    moved += p[i] * (e.empty() ? 0 : e[i]);
    spread += p[i] * (m - x[i]);
  }
  const double roundings = gamma(std::ceil(static_cast<double>(x.size()) / 32) + 5 + 6, u);
  for (size_t i = 0; i < x.size(); ++i) {
    const double off = (e.empty() ? 0 : e[i]) + moved + u * (m - x[i] + spread) + roundings;
    error[i] = p[i] * (off < 1 ? off + off * off : num::exp64(std::min(off, 700.0)) - 1) + 0x1p-140;
  }
}

Scores scores_of(const ops::Route& op, std::span<const double> x, std::span<const double> e,
                 std::span<const double> bias, double u) {
  Scores s;
  if (op.gating == ops::Gating::softmax) {
    softmax_scores(x, e, u, s.score, s.score_error);
  } else {
    for (size_t i = 0; i < x.size(); ++i) {
      const double dx = e.empty() ? 0 : e[i];
      const double y = op.gating == ops::Gating::sigmoid         ? ops::sigmoid64(x[i])
                       : op.gating == ops::Gating::sqrt_softplus ? std::sqrt(ops::softplus64(x[i]))
                                                                 : x[i];
      s.score.push_back(y);
      s.score_error.push_back(op.gating == ops::Gating::sigmoid         ? dx / 4 + gamma(5, u) * (y + dx)
                              : op.gating == ops::Gating::sqrt_softplus ? dx / 2 + gamma(14, u) * (y + dx)
                                                                        : dx);
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    s.choice.push_back(s.score[i] + (bias.empty() ? 0 : bias[i]));
    s.choice_error.push_back(s.score_error[i] + (bias.empty() ? 0 : u * std::fabs(s.choice[i])));
  }
  return s;
}

// Whether expert a may stand before expert b.
bool may_precede(const Scores& s, size_t a, size_t b) {
  return s.choice[a] + s.choice_error[a] >= s.choice[b] - s.choice_error[b];
}

// The group's score and how far it may be off: of its best, or of its two best.
std::pair<double, double> group_score(const ops::Route& op, const Scores& s, size_t begin, size_t size) {
  std::vector<double> choice(s.choice.begin() + static_cast<long>(begin),
                             s.choice.begin() + static_cast<long>(begin + size));
  const double error = *std::max_element(s.choice_error.begin() + static_cast<long>(begin),
                                         s.choice_error.begin() + static_cast<long>(begin + size));
  std::sort(choice.rbegin(), choice.rend());
  if (op.group_by_best || size == 1) return {choice[0], error};
  return {choice[0] + choice[1], 2 * error + std::fabs(choice[0] + choice[1]) * 0x1p-23};
}

// Experts whose group no rounding can bring among the used ones take no part.
std::vector<bool> can_take_part(const ops::Route& op, const Scores& s) {
  std::vector<bool> can(s.choice.size(), true);
  if (op.n_groups <= 1) return can;
  const size_t size = s.choice.size() / at(op.n_groups);
  for (size_t g = 0; g < at(op.n_groups); ++g) {
    const auto [own, own_error] = group_score(op, s, g * size, size);
    int64_t n_surely_better = 0;
    for (size_t other = 0; other < at(op.n_groups); ++other) {
      const auto [score, error] = group_score(op, s, other * size, size);
      if (other != g && score - error > own + own_error) ++n_surely_better;
    }
    if (n_surely_better >= op.n_groups_used) std::fill_n(can.begin() + static_cast<long>(g * size), size, false);
  }
  return can;
}

// The experts that were found, if they are distinct and each rank's may stand before all that come later or not at all.
bool are_right(const ops::Route& op, const Scores& s, std::span<const double> found, std::vector<int32_t>& experts) {
  const auto n = static_cast<double>(s.choice.size());
  experts.clear();
  for (const double id : found) {
    if (!(id >= 0 && id < n) || id != std::floor(id)) return false;
    if (std::find(experts.begin(), experts.end(), static_cast<int32_t>(id)) != experts.end()) return false;
    experts.push_back(static_cast<int32_t>(id));
  }
  const std::vector<bool> can = can_take_part(op, s);
  std::vector<bool> taken(s.choice.size(), false);
  // With groups an expert may be passed over because its group was, if rounding allows that.
  const bool grouped = op.n_groups > 1;
  const size_t size = s.choice.size() / at(op.n_groups);
  for (const int32_t expert : experts) {
    if (!can[at(expert)]) return false;
    taken[at(expert)] = true;
    for (size_t other = 0; other < s.choice.size(); ++other) {
      if (taken[other] || !can[other] || may_precede(s, at(expert), other)) continue;
      const bool own_group_used =
          std::any_of(experts.begin(), experts.end(), [&](int32_t e) { return at(e) / size == other / size; });
      if (!grouped || own_group_used) return false;
    }
  }
  return true;
}

std::vector<int32_t> best_experts(const ops::Route& op, std::span<const double> routes) {
  std::vector<int32_t> experts;
  for (int64_t i = 0; i < op.n_used; ++i) experts.push_back(static_cast<int32_t>(routes[at(op.n_used + i)]));
  return experts;
}

// The oracle's own choice.
std::vector<double> route_plainly(const ops::Route& op, std::span<const double> logits, const float* bias) {
  ops::Plan plan;
  plan.values = {{"logits", static_cast<int64_t>(logits.size())}, {"routes", 2 * op.n_used}};
  ops::Route own = op;
  own.logits = 0, own.y = 1, own.bias = bias == nullptr ? ops::kNone : 0, own.expert_scales = ops::kNone;
  std::vector<double> x(logits.begin(), logits.end()), y(at(2 * op.n_used));
  double* const values[] = {x.data(), y.data()};
  const float* const small[] = {bias};
  ops::HostRows<double> rows;
  rows.plan = &plan, rows.values = values, rows.small_weights = small;
  own.run(rows, 0, 1);
  return y;
}

// Shares among near logits (Gating::sparse_mixer) of these experts, in their order, and how far they may be off. e: of
// each logit; empty: 0.
void share_among_near(const ops::Route& op, std::span<const int32_t> experts, std::span<const double> x,
                      std::span<const double> e, double u, std::vector<double>& w, std::vector<double>& error) {
  const auto off = [&](size_t i) { return e.empty() ? 0 : e[i]; };
  std::vector<bool> is_taken(x.size(), false);
  for (const int32_t expert : experts) {
    const double m = x[at(expert)], dm = off(at(expert));
    double sum = 0, moved = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (is_taken[i]) continue;
      const double apart = m - x[i], d_apart = dm + off(i) + u * std::fabs(apart);
      const double larger = std::max(std::fabs(x[i]), m), least = larger - std::max(dm, off(i));
      const double distance = apart / larger, d_distance = (d_apart + std::fabs(distance) * (larger - least)) / least +
                                                           3 * u * (std::fabs(distance) + op.near);
      const bool is_open = !(least > 0) || std::fabs(distance - op.near) <= d_distance;  // may be on either side
      if (distance > op.near && !is_open) continue;
      const double term = num::exp64(-apart), d_term = term * (num::exp64(std::min(d_apart, 700.0)) - 1 + gamma(4, u));
      if (!(distance > op.near)) sum += term;
      moved += d_term + (is_open ? term : 0);
    }
    w.push_back(1 / sum);
    error.push_back(moved < sum ? moved / (sum * (sum - moved)) +
                                      gamma(std::ceil(static_cast<double>(x.size()) / 32) + 5 + 4, u) / sum
                                : 1);
    is_taken[at(expert)] = true;
  }
}

// Weights of these experts, in their order, and how far they may be off.
void weigh(const ops::Route& op, const Scores& s, std::span<const int32_t> experts, std::span<const double> x,
           std::span<const double> e, double u, std::span<const double> scales, double* y, double* bound) {
  const auto k = at(op.n_used);
  std::vector<double> w, error;
  if (op.gating == ops::Gating::softmax_of_chosen) {
    std::vector<double> chosen, chosen_error;
    for (const int32_t expert : experts)
      chosen.push_back(x[at(expert)]), chosen_error.push_back(e.empty() ? 0 : e[at(expert)]);
    softmax_scores(chosen, chosen_error, u, w, error);
  } else if (op.gating == ops::Gating::sparse_mixer) {
    share_among_near(op, experts, x, e, u, w, error);
  } else {
    for (const int32_t expert : experts) w.push_back(s.score[at(expert)]), error.push_back(s.score_error[at(expert)]);
  }
  double sum = 0, sum_error = 0;
  for (size_t i = 0; i < k; ++i) sum += w[i], sum_error += error[i];
  for (size_t i = 0; i < k; ++i) {
    if (op.normalise) {
      const double least = std::max(sum - sum_error, op.least_sum);
      error[i] = (error[i] + w[i] * sum_error / std::max(sum, 1e-300)) / least;
      w[i] /= sum + op.least_sum;
    }
    const double scale = op.scale * (scales.empty() ? 1 : scales[at(experts[i])]);
    y[i] = w[i] * scale;
    const double moved = std::fabs(scale) * error[i];
    bound[i] = moved + gamma(static_cast<double>(k) + 5, u) * (std::fabs(y[i]) + moved) + 0x1p-140;
  }
}

// The first rank at which the experts differ, if any does. moved: how far an expert's choice may have been moved.
template <class Moved>
void note_tie(const Scores& s, std::span<const int32_t> found, std::span<const int32_t> exact, int64_t row,
              bool of_chain, Moved moved, std::vector<RouteTie>& ties) {
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank] == exact[rank]) continue;
    const size_t a = at(exact[rank]), b = at(found[rank]);
    ties.push_back({row, static_cast<int64_t>(rank), found[rank], exact[rank], s.choice[a] - s.choice[b],
                    moved(a) + moved(b), of_chain});
    return;
  }
}

}  // namespace

Expected local_route(const OpInputs& in, const ops::Route& op, const Declared& declared, base::ThreadPool& pool,
                     const LocalOptions& options) {
  const double u = unit(declared);
  const int64_t n = in.a.n, n_experts = in.a.width, width = 2 * op.n_used;
  std::vector<double> bias;
  if (op.bias != ops::kNone) bias = ops::vector_of(in.plan.weights[at(op.bias)]);
  const std::vector<float> bias_f32(bias.begin(), bias.end());
  std::vector<double> scales;
  if (op.expert_scales != ops::kNone) scales = ops::vector_of(in.plan.weights[at(op.expert_scales)]);
  Expected e;
  e.y.assign(at(n * width), 0), e.bound.assign(at(n * width), 0);
  if (options.chain != nullptr) options.chain->y.assign(at(n * width), 0);
  std::vector<std::vector<RouteTie>> ties(at(n));
  const float* const chosen_by = bias.empty() ? nullptr : bias_f32.data();
  pool.run(n, [&](int64_t row, int) {
    const auto x = in.a.values.subspan(at(row * n_experts), at(n_experts));
    const auto dx = in.a.error.empty() ? in.a.error : in.a.error.subspan(at(row * n_experts), at(n_experts));
    const Scores s = scores_of(op, x, dx, bias, u);
    double* y = e.y.data() + row * width;
    double* bound = e.bound.data() + row * width;
    std::vector<int32_t> experts;
    const bool follows =
        !in.found.empty() && are_right(op, s, in.found.subspan(at(row * width + op.n_used), at(op.n_used)), experts);
    const std::vector<int32_t> exact = best_experts(op, route_plainly(op, x, chosen_by));
    if (!follows) experts = exact;
    note_tie(
        s, experts, exact, row, false, [&](size_t i) { return s.choice_error[i]; }, ties[at(row)]);
    weigh(op, s, experts, x, dx, u, scales, y, bound);
    for (int64_t i = 0; i < op.n_used; ++i) y[op.n_used + i] = experts[at(i)];
    if (options.chain == nullptr) return;
    const auto of_chain = options.chain->a.values.subspan(at(row * n_experts), at(n_experts));
    const Scores chain = scores_of(op, of_chain, {}, bias, u);
    note_tie(
        chain, experts, best_experts(op, route_plainly(op, of_chain, chosen_by)), row, true,
        [&](size_t i) { return std::fabs(chain.choice[i] - s.choice[i]) + s.choice_error[i]; }, ties[at(row)]);
    double* chained = options.chain->y.data() + row * width;
    std::vector<double> unused(at(op.n_used));
    weigh(op, chain, experts, of_chain, {}, u, scales, chained, unused.data());
    for (int64_t i = 0; i < op.n_used; ++i) chained[op.n_used + i] = experts[at(i)];
  });
  for (const std::vector<RouteTie>& of_row : ties) e.ties.insert(e.ties.end(), of_row.begin(), of_row.end());
  return e;
}

Expected local_expert_linear(const OpInputs& in, const ops::ExpertLinear& op, const Declared& declared,
                             base::ThreadPool& pool, const LocalOptions& options) {
  const int64_t n = in.a.n, width = op.n_used * op.d_out, stride = in.a.width == op.d_in ? 0 : op.d_in;
  Expected all;
  all.y.assign(at(n * width), 0), all.bound.assign(at(n * width), 0);
  if (options.chain != nullptr) options.chain->y.assign(at(n * width), 0);
  std::vector<std::vector<std::pair<int64_t, int64_t>>> places(at(op.n_experts));  // row and rank, by expert
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t rank = 0; rank < op.n_used; ++rank) {
      const double id =
          op.routes == ops::kNone ? static_cast<double>(rank) : in.b.values[at(row * in.b.width + op.n_used + rank)];
      if (id >= 0 && id < static_cast<double>(op.n_experts))
        places[at(static_cast<int64_t>(id))].emplace_back(row, rank);
    }
  }
  const tensor::TensorView& w = in.plan.weights[at(op.w)].view;
  for (int64_t expert = 0; expert < op.n_experts; ++expert) {
    const auto& own = places[at(expert)];
    if (own.empty()) continue;
    const auto gather = [&](std::span<const double> from) {
      std::vector<double> to;
      for (const auto& [row, rank] : own) {
        if (from.empty()) break;
        const auto part = from.subspan(at(row * in.a.width + rank * stride), at(op.d_in));
        to.insert(to.end(), part.begin(), part.end());
      }
      return to;
    };
    ops::Plan plan;
    plan.weights.push_back(in.plan.weights[at(op.w)]);
    tensor::TensorView& view = plan.weights[0].view;
    view.data = w.data.subspan(at(op.row_of(expert) * w.row_bytes()), at(op.d_out * w.row_bytes()));
    view.shape = {{op.d_out, op.d_in, 1, 1}, 2};
    if (op.bias != ops::kNone) {
      plan.weights.push_back(in.plan.weights[at(op.bias)]);
      plan.weights[1].view.data =
          plan.weights[1].view.data.subspan(at(op.row_of(expert)) * sizeof(float), at(op.d_out) * sizeof(float));
      plan.weights[1].view.shape = {{op.d_out, 1, 1, 1}, 1};
    }
    plan.values = {{"x", op.d_in}, {"y", op.d_out}};
    const ops::Op linear{ops::Linear{0, 0, op.bias == ops::kNone ? ops::kNone : 1, 1}, in.op.name, in.op.layer};
    const auto n_own = static_cast<int64_t>(own.size());
    const std::vector<double> x = gather(in.a.values), dx = gather(in.a.error);
    const std::vector<double> chain_x =
        options.chain != nullptr ? gather(options.chain->a.values) : std::vector<double>();
    ChainOp chain{{n_own, op.d_in, chain_x, {}}, {}, {}, {}};
    const OpInputs of_expert{plan, linear, {n_own, op.d_in, x, dx}, {}, {}, {}, {}};
    const Expected found = local_linear(of_expert, linear.get<ops::Linear>(), declared, pool,
                                        {.as_declared = false, .chain = options.chain != nullptr ? &chain : nullptr});
    for (size_t i = 0; i < own.size(); ++i) {
      const int64_t to = own[i].first * width + own[i].second * op.d_out, from = static_cast<int64_t>(i) * op.d_out;
      std::copy_n(found.y.begin() + from, op.d_out, all.y.begin() + to);
      std::copy_n(found.bound.begin() + from, op.d_out, all.bound.begin() + to);
      if (options.chain != nullptr) std::copy_n(chain.y.begin() + from, op.d_out, options.chain->y.begin() + to);
    }
  }
  return all;
}

}  // namespace assay::bounds
