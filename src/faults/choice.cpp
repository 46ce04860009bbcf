// Known ways to choose keys wrongly, and to attend to others than those that were chosen.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "backend/oracle/oracle_ops.h"
#include "bounds/choice_bound.h"
#include "faults/table.h"

namespace assay::faults::dictionary {
namespace {

// Keys as a cache of the declared type gives them back, where that is known.
const std::vector<double>& keys_of(const bounds::KvHistory& h) {
  return h.k_stored.size() == h.k.size() ? h.k_stored : h.k;
}
const std::vector<double>& values_of(const bounds::KvHistory& h) {
  return h.v_stored.size() == h.v.size() ? h.v_stored : h.v;
}

const bounds::KvHistory& history_of(const Case& c, int64_t row) { return c.failed.history.at(c.sequence(row)); }

bool has_history(const Case& c) {
  for (int64_t row = 0; row < c.failed.n_rows; ++row) {
    const auto found = c.failed.history.find(c.sequence(row));
    if (found == c.failed.history.end() || c.position(row) < 0 || found->second.n_positions() <= c.position(row))
      return false;
  }
  return !c.failed.b.empty();
}

// ---- The choice.
struct ChoiceRule {
  int64_t n_fewer = 0;  // of the keys that are chosen
  bool relu = true, weighted = true, of_first_head = false, smallest = false;
  int64_t n_unseen = 0;  // of the newest keys
};

RowFunction choice_with(const Case& c, ChoiceRule rule) {
  return [&c, rule](int64_t row, double* y) {
    const auto& op = c.record<ops::ChooseKeys>();
    const int64_t n = c.position(row) + 1 - rule.n_unseen, n_chosen = c.failed.width - rule.n_fewer;
    std::fill_n(y, c.failed.width, -1.0);
    if (n <= n_chosen) return ops::choose_all(n, n_chosen, y);
    std::vector<double> scores(static_cast<size_t>(n));
    std::vector<int32_t> order(scores.size());
    for (int64_t p = 0; p < n; ++p) {
      double score = 0;
      for (int64_t head = 0; head < (rule.of_first_head ? 1 : op.n_heads); ++head) {
        double dot = 0;
        for (int64_t j = 0; j < op.head_dim; ++j)
          dot +=
              c.a(row)[head * op.head_dim + j] * keys_of(history_of(c, row))[static_cast<size_t>(p * op.head_dim + j)];
        score += (rule.weighted ? c.b(row)[head] : 1.0) * (rule.relu ? std::max(dot, 0.0) : dot);
      }
      scores[static_cast<size_t>(p)] = rule.smallest ? -score : score;
    }
    ops::choose_best(scores.data(), n, n_chosen, order.data(), y);
  };
}

void offer(const Case& c, Sink& out, std::string text, ChoiceRule rule) {
  if (has_history(c)) out.add_rows(std::move(text), choice_with(c, rule));
}

void offer_count(const Case& c, Sink& out) {
  if (c.failed.width > 1)
    offer(c, out, fmt::format("one key too few is chosen: {}, where {} are right", c.failed.width - 1, c.failed.width),
          {.n_fewer = 1});
}

void offer_scores(const Case& c, Sink& out) {
  offer(c, out, "negative products of index heads count: the ReLU is missing", {.relu = false});
  offer(c, out, "index heads are added up without their weights", {.weighted = false});
  offer(c, out, "the first index head alone is counted", {.of_first_head = true});
  offer(c, out, "the keys of the smallest scores are chosen", {.smallest = true});
  offer(c, out, "a token's own key takes no part in its choice", {.n_unseen = 1});
}

constexpr Entry kChoiceEntries[] = {{"choice_count", "", offer_count}, {"choice_scores", "", offer_scores}};

// ---- Attention over it.
using Positions = std::function<std::vector<int32_t>(int64_t row, std::vector<int32_t> chosen)>;

RowFunction sparse_with(const Case& c, Positions positions, double scale) {
  return [&c, positions = std::move(positions), scale](int64_t row, double* y) {
    const auto& op = c.record<ops::SparseAttention>();
    const std::span<const double> choice(c.b(row), static_cast<size_t>(c.failed.b_width));
    const std::vector<int32_t> own = positions(row, bounds::positions_in(choice, c.position(row)));
    const int64_t v_dim = c.failed.width / op.n_heads, n = static_cast<int64_t>(own.size());
    std::fill_n(y, c.failed.width, 0.0);
    if (own.empty()) return;
    const bounds::KvHistory h = bounds::chosen_of(history_of(c, row), own);
    std::vector<double> shares(own.size());
    for (int64_t head = 0; head < op.n_heads; ++head) {
      const int64_t kv_head = head / (op.n_heads / op.n_kv_heads);
      backend::oracle::attend(
          {c.a(row) + head * op.head_dim, static_cast<size_t>(op.head_dim)},
          {keys_of(h).data() + kv_head * op.head_dim, h.width, values_of(h).data() + kv_head * v_dim, h.v_width}, 0,
          n - 1, {scale}, shares, {y + head * v_dim, static_cast<size_t>(v_dim)});
    }
  };
}

std::vector<int32_t> all_up_to(int64_t position) {
  std::vector<int32_t> all;
  for (int64_t p = 0; p <= position; ++p) all.push_back(static_cast<int32_t>(p));
  return all;
}

void offer(const Case& c, Sink& out, std::string text, Positions positions) {
  if (has_history(c))
    out.add_rows(std::move(text), sparse_with(c, std::move(positions), c.record<ops::SparseAttention>().scale));
}

void offer_ignored(const Case& c, Sink& out) {
  offer(c, out, "all keys are attended to: the indexer's choice is ignored",
        [&c](int64_t row, const auto&) { return all_up_to(c.position(row)); });
  offer(c, out, "the newest keys are attended to, as many as the indexer chooses: its choice is taken for a window",
        [&c](int64_t row, const auto& chosen) {
          std::vector<int32_t> all = all_up_to(c.position(row));
          all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(std::min(all.size(), chosen.size())));
          return all;
        });
}

void offer_shifted(const Case& c, Sink& out) {
  offer(c, out, "the last of the chosen keys is left out", [](int64_t, std::vector<int32_t> chosen) {
    if (chosen.size() > 1) chosen.pop_back();
    return chosen;
  });
  offer(c, out, "the first of the chosen keys is left out", [](int64_t, std::vector<int32_t> chosen) {
    if (chosen.size() > 1) chosen.erase(chosen.begin());
    return chosen;
  });
  offer(c, out, "the chosen positions are off by one", [](int64_t, std::vector<int32_t> chosen) {
    for (int32_t& p : chosen) p = std::max(p - 1, 0);
    return chosen;
  });
}

void offer_scale(const Case& c, Sink& out) {
  const auto& op = c.record<ops::SparseAttention>();
  const double cached = 1 / std::sqrt(static_cast<double>(op.head_dim));
  if (!has_history(c) || cached == op.scale) return;
  out.add_rows(
      fmt::format("scores are scaled by 1/sqrt({}), the width of a cached key; {:.6g} is right", op.head_dim, op.scale),
      sparse_with(
          c, [](int64_t, std::vector<int32_t> chosen) { return chosen; }, cached));
}

constexpr Entry kSparseEntries[] = {
    {"choice_ignored", "", offer_ignored}, {"choice_shifted", "", offer_shifted}, {"attention_scale", "", offer_scale}};

}  // namespace

std::span<const Entry> choose_keys_entries() noexcept { return kChoiceEntries; }
std::span<const Entry> sparse_attention_entries() noexcept { return kSparseEntries; }

}  // namespace assay::faults::dictionary
