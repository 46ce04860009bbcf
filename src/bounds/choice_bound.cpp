// See choice_bound.h.
#include "bounds/choice_bound.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "base/index.h"
#include "bounds/attention_bound.h"
#include "bounds/rounding.h"

namespace assay::bounds {
namespace {

double length_of(std::span<const double> x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  return std::sqrt(squares) * (1 + 0x1p-40);
}

// Scores of the keys up to a row's position in float64, and how far each may be off.
struct KeyScores {
  std::vector<double> score, error;
};

// What one row is scored from. keys: [n, head_dim] from the first position on; norms: of the keys and their errors,
// empty: no errors are asked for.
struct ScoredKeys {
  std::span<const double> q, weights, q_error, weight_error;
  const double* keys;
  const KeyNorms* norms;
  bool half_q = false;  // queries become f16 first
};

KeyScores key_scores_of(const ops::ChooseKeys& op, const ScoredKeys& of, int64_t n, double u) {
  KeyScores s{std::vector<double>(at(n)), std::vector<double>(at(n))};
  std::vector<double> moved(at(n)), sums(at(n));  // by errors of terms; magnitudes of terms
  const auto part = [&](std::span<const double> all, int64_t head) {
    return all.empty() ? all : all.subspan(at(head * op.head_dim), at(op.head_dim));
  };
  for (int64_t head = 0; head < op.n_heads; ++head) {
    const std::span<const double> q = part(of.q, head);
    const bool plain = op.weights == ops::kNone;
    const double w = plain ? 1 : of.weights[at(head)], dw = of.weight_error.empty() ? 0 : of.weight_error[at(head)],
                 q_norm = length_of(q);
    double dq = length_of(part(of.q_error, head));
    if (of.half_q) dq += kUnitHalf * (q_norm + dq) + kTinyHalf * std::sqrt(static_cast<double>(op.head_dim));
    for (int64_t p = 0; p < n; ++p) {
      const double* key = of.keys + p * op.head_dim;
      double dot = 0;
      for (size_t j = 0; j < q.size(); ++j) dot += q[j] * key[j];
      const double relu = 0 > dot && !plain ? 0 : dot;
      s.score[at(p)] += w * relu;
      if (of.norms == nullptr) continue;
      const double k = of.norms->norm[at(p)], dk = of.norms->error[at(p)];
      const double off =
          dq * (k + dk) + q_norm * dk + gamma(static_cast<double>(op.head_dim) + 1, u) * (q_norm + dq) * (k + dk);
      moved[at(p)] += std::fabs(w) * off + dw * (std::fabs(relu) + off);
      sums[at(p)] += (std::fabs(w) + dw) * (std::fabs(relu) + off);
    }
  }
  for (size_t p = 0; p < at(n); ++p) s.error[p] = moved[p] + gamma(static_cast<double>(op.n_heads) + 1, u) * sums[p];
  return s;
}

// Of blocks, from those of their keys: a maximum moves no further than what it is of.
KeyScores pooled(const ops::ChooseKeys& op, KeyScores s) {
  if (op.n_block == 1) return s;
  const auto n = static_cast<int64_t>(s.score.size());
  for (int64_t p = 0; p < n; ++p) {
    const size_t block = at(p / op.n_block);
    s.error[block] = p % op.n_block == 0 ? s.error[at(p)] : std::max(s.error[block], s.error[at(p)]);
  }
  const int64_t n_blocks = ops::pool_blocks(s.score.data(), n, op);
  s.score.resize(at(n_blocks)), s.error.resize(at(n_blocks));
  for (size_t block = 0; block < at(n_blocks); ++block) {
    if (std::isinf(s.score[block])) s.score[block] = std::numeric_limits<double>::max() / 4, s.error[block] = 0;
  }
  return s;
}

// The blocks that these positions are all the visible ones of; none where they are not.
std::vector<int32_t> blocks_of(const ops::ChooseKeys& op, std::span<const int32_t> positions, int64_t n) {
  std::vector<int32_t> blocks;
  for (size_t i = 0; i < positions.size();) {
    const int64_t block = positions[i] / op.n_block, end = std::min(n, (block + 1) * op.n_block);
    for (int64_t p = block * op.n_block; p < end; ++p, ++i) {
      if (i >= positions.size() || positions[i] != p) return {};
    }
    blocks.push_back(static_cast<int32_t>(block));
  }
  return blocks;
}

std::vector<int32_t> best_keys(const KeyScores& s, int64_t n_chosen) {
  std::vector<double> row(at(n_chosen));
  std::vector<int32_t> order(s.score.size()), found;
  ops::choose_best(s.score.data(), static_cast<int64_t>(s.score.size()), n_chosen, order.data(), row.data());
  for (const double p : row) found.push_back(std::isnan(p) ? -1 : static_cast<int32_t>(p));
  return found;
}

// Every key in it may stand before every key that is not.
bool may_be_chosen(const KeyScores& s, std::span<const int32_t> chosen, int64_t n_chosen) {
  if (static_cast<int64_t>(chosen.size()) != n_chosen) return false;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  size_t next = 0;
  for (size_t p = 0; p < s.score.size(); ++p) {
    const bool is_in = next < chosen.size() && at(chosen[next]) == p;
    if (is_in) ++next, least = std::min(least, s.score[p] + s.error[p]);
    if (!is_in) most = std::max(most, s.score[p] - s.error[p]);
  }
  return least >= most;
}

// The first key on each side that the other one lacks. moved: how far a key's score may have been moved.
template <class Moved>
void note_key_tie(const KeyScores& s, std::span<const int32_t> found, std::span<const int32_t> exact, int64_t row,
                  bool of_chain, Moved moved, std::vector<RouteTie>& ties) {
  std::vector<int32_t> only_found, only_exact;
  std::ranges::set_difference(found, exact, std::back_inserter(only_found));
  std::ranges::set_difference(exact, found, std::back_inserter(only_exact));
  if (only_found.empty() || only_exact.empty() || only_exact.front() < 0) return;
  const size_t a = at(only_exact.front()), b = at(only_found.front());
  const auto rank = std::ranges::find(found, only_found.front()) - found.begin();
  ties.push_back(
      {row, rank, only_found.front(), only_exact.front(), s.score[a] - s.score[b], moved(a) + moved(b), of_chain});
}

}  // namespace

std::vector<int32_t> positions_in(std::span<const double> row, int64_t position) {
  std::vector<int32_t> positions;
  for (const double p : row) {
    if (p < 0) break;
    if (!(p <= static_cast<double>(position)) || p != std::floor(p) ||
        (!positions.empty() && static_cast<int32_t>(p) <= positions.back()))
      return {};
    positions.push_back(static_cast<int32_t>(p));
  }
  return positions;
}

KvHistory chosen_of(const KvHistory& h, std::span<const int32_t> positions) {
  KvHistory chosen;
  chosen.width = h.width, chosen.v_width = h.v_width;
  const auto take = [&](const std::vector<double>& from, int64_t width, std::vector<double>& to) {
    if (from.empty()) return;
    to.reserve(positions.size() * at(width));
    for (const int32_t p : positions) to.insert(to.end(), from.begin() + p * width, from.begin() + (p + 1) * width);
  };
  take(h.k, h.width, chosen.k), take(h.k_error, h.width, chosen.k_error), take(h.k_stored, h.width, chosen.k_stored);
  take(h.v, h.v_width, chosen.v), take(h.v_error, h.v_width, chosen.v_error),
      take(h.v_stored, h.v_width, chosen.v_stored);
  return chosen;
}

Expected local_choice(const OpInputs& in, const ops::ChooseKeys& op, const Declared& declared, base::ThreadPool& pool,
                      const LocalOptions& options) {
  const double u = unit(declared);
  const int64_t n_rows = in.a.n, n_chosen = in.plan.values[at(op.y)].width;
  Expected e;
  e.y.assign(at(n_rows * n_chosen), -1), e.bound.assign(at(n_rows * n_chosen), 0);
  std::map<const KvHistory*, KeyNorms> norms;
  for (const KvHistory* h : in.history) {
    if (!norms.contains(h)) norms.emplace(h, key_norms(in.plan, *h, op.layer, declared, pool));
  }
  std::vector<std::vector<RouteTie>> ties(at(n_rows));
  const bool half_q = declared.activations_f16 && declared.cache_k == ops::CacheType::f16;
  pool.run(n_rows, [&](int64_t row, int) {
    const int64_t n = in.positions[at(row)] + int64_t{1};
    const auto of = [row](const Rows& rows, std::span<const double> all) {
      return all.empty() ? all : all.subspan(at(row * rows.width), at(rows.width));
    };
    double* y = e.y.data() + row * n_chosen;
    if (n <= n_chosen) return ops::choose_all(n, n_chosen, y);
    const KvHistory& h = *in.history[at(row)];
    const bool is_known = h.k_stored.size() == h.k.size();
    const KeyScores s = pooled(
        op, key_scores_of(op,
                          {of(in.a, in.a.values), of(in.b, in.b.values), of(in.a, in.a.error), of(in.b, in.b.error),
                           is_known ? h.k_stored.data() : h.k.data(), &norms.at(&h), half_q},
                          n, u));
    const int64_t n_best = n_chosen / op.n_block;  // keys, or blocks of them
    const std::vector<int32_t> exact = best_keys(s, n_best);
    std::vector<int32_t> chosen = exact;
    if (!in.found.empty())
      chosen = blocks_of(op, positions_in(in.found.subspan(at(row * n_chosen), at(n_chosen)), n - 1), n);
    if (!may_be_chosen(s, chosen, n_best)) chosen = exact;
    double* next = y;
    for (const int32_t block : chosen) {
      const int64_t first = block * op.n_block;
      if (block < 0) std::fill_n(next, op.n_block, std::numeric_limits<double>::quiet_NaN()), next += op.n_block;
      for (int64_t p = first; block >= 0 && p < std::min(n, first + op.n_block); ++p) *next++ = static_cast<double>(p);
    }
    note_key_tie(
        s, chosen, exact, row, false, [&](size_t p) { return s.error[p]; }, ties[at(row)]);
    if (options.chain == nullptr) return;
    const ChainOp& chain = *options.chain;
    const KeyScores c = pooled(op, key_scores_of(op,
                                                 {of(chain.a, chain.a.values),
                                                  of(chain.b, chain.b.values),
                                                  {},
                                                  {},
                                                  chain.history[at(row)]->k.data(),
                                                  nullptr},
                                                 n, u));
    note_key_tie(
        c, chosen, best_keys(c, n_best), row, true,
        [&](size_t p) { return std::fabs(c.score[p] - s.score[p]) + s.error[p]; }, ties[at(row)]);
  });
  for (const std::vector<RouteTie>& of_row : ties) e.ties.insert(e.ties.end(), of_row.begin(), of_row.end());
  if (options.chain != nullptr) options.chain->y = e.y;
  return e;
}

namespace {

// Some rows of a sparse attention, as attention over histories of their own.
class Rewritten {
 public:
  Rewritten(const OpInputs& in, const ops::SparseAttention& op) : in_(in) {
    ops::Attention attention{op.q, op.layer, op.n_heads, op.n_kv_heads, op.head_dim, op.scale, 0, op.y};
    op_.push_back({attention, in.op.name, in.op.layer});
  }

  // Rows, the last position of each in its history, and the histories.
  void run(std::span<const int64_t> rows, std::span<const int32_t> last, std::span<const KvHistory* const> history,
           std::span<const KvHistory* const> of_chain, const Declared& declared, base::ThreadPool& pool,
           const LocalOptions& options, Expected& all) const {
    const std::vector<double> q = gather(in_.a.values, rows), dq = gather(in_.a.error, rows);
    const std::vector<double> chain_q =
        options.chain != nullptr ? gather(options.chain->a.values, rows) : std::vector<double>();
    const auto n = static_cast<int64_t>(rows.size());
    ChainOp chain{{n, in_.a.width, chain_q, {}}, {}, of_chain, {}};
    const OpInputs own{in_.plan, op_.front(), {n, in_.a.width, q, dq}, {}, {}, last, history};
    const Expected found = local_attention(own, op_.front().get<ops::Attention>(), declared, pool,
                                           {options.as_declared, options.chain != nullptr ? &chain : nullptr});
    put(found.y, rows, all.y), put(found.bound, rows, all.bound);
    put(found.declared_y, rows, all.declared_y), put(found.declared_bound, rows, all.declared_bound);
    if (options.chain != nullptr) put(chain.y, rows, options.chain->y);
  }

 private:
  std::vector<double> gather(std::span<const double> from, std::span<const int64_t> rows) const {
    std::vector<double> to;
    for (const int64_t row : rows) {
      if (from.empty()) break;
      const auto part = from.subspan(at(row * in_.a.width), at(in_.a.width));
      to.insert(to.end(), part.begin(), part.end());
    }
    return to;
  }
  void put(const std::vector<double>& from, std::span<const int64_t> rows, std::vector<double>& to) const {
    if (from.empty()) return;
    const size_t width = from.size() / rows.size();
    to.resize(at(in_.a.n) * width);
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(from.begin() + static_cast<int64_t>(i * width), width,
                  to.begin() + rows[i] * static_cast<int64_t>(width));
  }

  const OpInputs& in_;
  std::vector<ops::Op> op_;
};

}  // namespace

Expected local_sparse_attention(const OpInputs& in, const ops::SparseAttention& op, const Declared& declared,
                                base::ThreadPool& pool, const LocalOptions& options) {
  const int64_t width = in.plan.values[at(op.y)].width;
  const Rewritten rewritten(in, op);
  Expected e;
  e.y.assign(at(in.a.n * width), std::numeric_limits<double>::quiet_NaN()), e.bound.assign(at(in.a.n * width), 0);
  if (options.chain != nullptr) options.chain->y.assign(at(in.a.n * width), std::numeric_limits<double>::quiet_NaN());
  std::vector<int64_t> whole;  // rows whose choice is all they see
  std::vector<int32_t> whole_last;
  std::vector<const KvHistory*> history, of_chain;
  for (int64_t row = 0; row < in.a.n; ++row) {
    const int32_t position = in.positions[at(row)];
    const std::vector<int32_t> positions =
        positions_in(in.b.values.subspan(at(row * in.b.width), at(in.b.width)), position);
    const KvHistory& h = *in.history[at(row)];
    if (positions.empty() || positions.back() >= h.n_positions())
      continue;  // no choice at all: what attends to it is no number
    const auto last = static_cast<int32_t>(positions.size()) - 1;
    if (last == position) {
      whole.push_back(row), whole_last.push_back(position), history.push_back(&h);
      if (options.chain != nullptr) of_chain.push_back(options.chain->history[at(row)]);
      continue;
    }
    const KvHistory own = chosen_of(h, positions);
    const KvHistory chained =
        options.chain != nullptr ? chosen_of(*options.chain->history[at(row)], positions) : KvHistory();
    const KvHistory *const of_row = &own, *const chain_of_row = &chained;
    rewritten.run(std::span(&row, 1), std::span(&last, 1), std::span(&of_row, 1), std::span(&chain_of_row, 1), declared,
                  pool, options, e);
  }
  if (!whole.empty()) rewritten.run(whole, whole_last, history, of_chain, declared, pool, options, e);
  return e;
}

}  // namespace assay::bounds
