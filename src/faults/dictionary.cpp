// See dictionary.h. Candidates are tried on a sample of the output first; the best are then
// computed whole, or, where that is too much work, on a larger sample.
#include "faults/dictionary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <type_traits>

#include "backend/oracle/oracle_ops.h"
#include "bounds/rounding.h"
#include "faults/attention.h"
#include "faults/linear.h"
#include "faults/table.h"
#include "num/f16.h"
#include "ops/attention/attention.h"
#include "ops/attention/choose_keys.h"
#include "ops/attention/rope.h"
#include "ops/attention/sparse_attention.h"
#include "ops/embed/embed.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/plan/float64.h"
#include "ops/plan/op_values.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_by_position.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "ops/state/causal_conv.h"

namespace assay::faults {
namespace dictionary {

int64_t Case::batch_start(int64_t row) const {
  const auto i = static_cast<size_t>(failed.i_batch);
  if (i < failed.batch_starts.size()) {
    const auto found = failed.batch_starts[i].find(sequence(row));
    if (found != failed.batch_starts[i].end()) return found->second;
  }
  int64_t first = position(row);
  for (int64_t t = 0; t < failed.n_rows; ++t) {
    if (sequence(t) == sequence(row)) first = std::min(first, position(t));
  }
  return first;
}

Sharpest sharpest(const FailedOp& f) {
  if (f.expected.declared_y.empty()) return {f.expected.y, f.expected.bound};
  return {f.expected.declared_y, f.expected.declared_bound};
}

const double* Case::right(int64_t row) const { return sharpest(failed).y.data() + row * failed.width; }

std::vector<double> Case::vector(ops::WeightId id) const {
  return ops::vector_of(plan.weights[static_cast<size_t>(id)]);
}

const ops::Attention* Case::attention() const {
  const ops::Attention* first = nullptr;
  for (const ops::Op& other : plan.ops) {
    const auto* record = other.as<ops::Attention>();
    if (record == nullptr) continue;
    if (other.layer == op().layer) return record;
    if (first == nullptr) first = record;
  }
  return first;
}

const ops::Op* Case::writer(ops::ValueId value) const {
  const auto found = std::find_if(plan.ops.begin(), plan.ops.end(),
                                  [&](const ops::Op& o) { return ops::values_of(o).output == value; });
  return found == plan.ops.end() ? nullptr : &*found;
}

SampleFunction by_rows(const Case& c, RowFunction compute) {
  return [&c, compute = std::move(compute)](const Sample& sample, double* y) {
    const auto n_columns = static_cast<int64_t>(sample.columns.size());
    c.pool.run(static_cast<int64_t>(sample.rows.size()), [&](int64_t i, int) {
      std::vector<double> whole(static_cast<size_t>(c.failed.width));
      compute(sample.rows[static_cast<size_t>(i)], whole.data());
      for (int64_t j = 0; j < n_columns; ++j) {
        y[i * n_columns + j] = whole[static_cast<size_t>(sample.columns[static_cast<size_t>(j)])];
      }
    });
  };
}

namespace {

struct TableRow {
  const void* op;  // its type
  std::span<const Entry> (*entries)() noexcept;
};
template <class R>
constexpr TableRow row(std::span<const Entry> (*entries)() noexcept) {
  return {ops::Record::type_of<R>(), entries};
}

}  // namespace

std::vector<std::span<const Entry>> tables_of(const Case& c) {
  static const TableRow kTables[] = {
      row<ops::Embed>(embed_entries),
      row<ops::RmsNorm>(norm_entries),
      row<ops::LayerNorm>(layer_norm_entries),
      row<ops::Linear>(linear_weight_entries),
      row<ops::Linear>(linear_entries),
      row<ops::Linear>(linear_input_entries),
      row<ops::Linear>(kernel_entries),
      row<ops::Rope>(rope_entries),
      row<ops::Gate>(gate_entries),
      row<ops::ClampedGate>(clamped_gate_entries),
      row<ops::Activate>(activate_entries),
      row<ops::Add>(add_entries),
      row<ops::Scale>(scale_entries),
      row<ops::ScaleByPosition>(scale_by_position_entries),
      row<ops::Softcap>(softcap_entries),
      row<ops::Slice>(slice_entries),
      row<ops::Route>(route_entries),
      row<ops::ExpertLinear>(expert_linear_entries),
      row<ops::ExpertSum>(expert_sum_entries),
      row<ops::ExpertScale>(expert_scale_entries),
      row<ops::CausalConv>(conv_entries),
      row<ops::ChooseKeys>(choose_keys_entries),
      row<ops::SparseAttention>(sparse_attention_entries),
  };
  std::vector<std::span<const Entry>> tables;
  for (const TableRow& table : kTables) {
    if (table.op == c.op().record.type()) tables.push_back(table.entries());
  }
  if (c.op().is<ops::Attention>() && has_history(c)) {
    tables.push_back(attention_entries());
    if (has_plain_cache(c)) tables.push_back(attention_cache_entries());
  }
  tables.push_back(any_entries());
  return tables;
}

void for_each_entry(const Case& c, const std::function<void(std::vector<Candidate>)>& take) {
  for (const std::span<const Entry> table : tables_of(c)) {
    for (const Entry& entry : table) {
      Sink sink(c);
      sink.begin(entry.id, entry.faults);
      entry.offer(c, sink);
      take(sink.take());
    }
  }
}

double as_f16(double x) noexcept {
  return static_cast<double>(num::half_to_float(num::float_to_half(static_cast<float>(x))));
}
double as_bf16(double x) noexcept {
  return static_cast<double>(num::bf16_to_float(num::float_to_bf16(static_cast<float>(x))));
}

}  // namespace dictionary

namespace {

using dictionary::Candidate;
using dictionary::Case;
using dictionary::Sample;

constexpr int64_t kSampleRows = 5, kSampleColumns = 512;
constexpr int64_t kConfirmWork = 400'000'000;  // products of one confirmation at most: about half a second
constexpr size_t kConfirmed = 8;               // candidates that are computed whole
constexpr double kExplainsSome = 0.7;          // a residual above says nothing about the cause
constexpr double kRounding = 1e-3;  // a residual below is the observed engine's rounding, whatever the bound says

struct Match {
  double residual = std::numeric_limits<double>::infinity();
  bool within = false;  // every element within its bound
  bool reproduces() const { return residual < kRounding || (within && residual < 0.5); }
};

// At most n of all, evenly spread, both ends among them.
std::vector<int64_t> spread(const std::vector<int64_t>& all, int64_t n) {
  const auto size = static_cast<int64_t>(all.size());
  if (size <= n) return all;
  std::vector<int64_t> some;
  for (int64_t i = 0; i < n; ++i) some.push_back(all[static_cast<size_t>(n == 1 ? 0 : i * (size - 1) / (n - 1))]);
  return some;
}

void sort_unique(std::vector<int64_t>& x) {
  std::sort(x.begin(), x.end());
  x.erase(std::unique(x.begin(), x.end()), x.end());
}

std::vector<int64_t> up_to(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

double ratio_at(const FailedOp& f, size_t i) {
  const double wide = bounds::excess(f.found[i], f.expected.y[i], f.expected.bound[i]);
  return f.expected.declared_y.empty()
             ? wide
             : std::max(wide, bounds::excess(f.found[i], f.expected.declared_y[i], f.expected.declared_bound[i]));
}

// The worst row, rows and columns where something is wrong, and some from everywhere.
Sample choose_sample(const FailedOp& f, int64_t n_rows, int64_t n_columns) {
  std::vector<int64_t> bad_rows, bad_columns;
  std::vector<bool> column_is_bad(static_cast<size_t>(f.width), false);
  int64_t worst_row = 0;
  double worst = -1;
  for (int64_t t = 0; t < f.n_rows; ++t) {
    double row_worst = 0;
    for (int64_t j = 0; j < f.width; ++j) {
      const double ratio = ratio_at(f, static_cast<size_t>(t * f.width + j));
      row_worst = std::max(row_worst, ratio);
      if (ratio > 1) column_is_bad[static_cast<size_t>(j)] = true;
    }
    if (row_worst > 1) bad_rows.push_back(t);
    if (row_worst > worst) worst = row_worst, worst_row = t;
  }
  for (int64_t j = 0; j < f.width; ++j) {
    if (column_is_bad[static_cast<size_t>(j)]) bad_columns.push_back(j);
  }
  Sample sample{spread(bad_rows, std::max<int64_t>(1, n_rows / 2)), spread(bad_columns, n_columns / 2)};
  sample.rows.push_back(worst_row);
  for (const int64_t t :
       spread(up_to(f.n_rows), std::max<int64_t>(1, n_rows - static_cast<int64_t>(sample.rows.size())))) {
    sample.rows.push_back(t);
  }
  for (const int64_t j : spread(up_to(f.width), n_columns - static_cast<int64_t>(sample.columns.size())))
    sample.columns.push_back(j);
  sort_unique(sample.rows);
  sort_unique(sample.columns);
  return sample;
}

// A mutation that makes values larger makes their rounding larger: the bounds of a row grow with
// it.
double growth(std::span<const double> mutated, std::span<const double> right, const std::vector<size_t>& at) {
  double from = 0, to = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    from += right[at[i]] * right[at[i]];
    to += mutated[i] * mutated[i];
  }
  return std::isfinite(to) && from > 0 ? std::max(1.0, std::sqrt(to / from)) : 1.0;
}

// The right op with the roundings that the source declares: a mutation that changes nothing must
// not be taken for an explanation of those.
std::vector<double> right_as_declared(const Case& c, const Sample& sample) {
  const FailedOp& f = c.failed;
  std::vector<double> y(sample.rows.size() * sample.columns.size());
  const bool rounds = f.expected.declared_y.empty();
  if (rounds && c.op().is<ops::Linear>()) {
    dictionary::linear_with(c, dictionary::right_linear(c))(sample, y.data());
  } else if (rounds && c.op().is<ops::Attention>() && dictionary::has_history(c)) {
    dictionary::by_rows(c, dictionary::attention_with(c, dictionary::right_attention(c)))(sample, y.data());
  } else {
    dictionary::by_rows(c, [&c](int64_t row, double* out) { std::copy_n(c.right(row), c.failed.width, out); })(
        sample, y.data());
  }
  return y;
}

// Candidates against what was found, over one sample.
class Trial {
 public:
  Trial(const Case& c, Sample sample) : c_(c), sample_(std::move(sample)), right_(right_as_declared(c, sample_)) {}

  Match match(const Candidate& candidate) const {
    const FailedOp& f = c_.failed;
    const dictionary::Sharpest expected = dictionary::sharpest(f);
    const size_t n = sample_.columns.size();
    std::vector<double> y(sample_.rows.size() * n);
    candidate.compute(sample_, y.data());
    Match match;
    match.within = true;
    double left = 0, before = 0;
    for (size_t i = 0; i < sample_.rows.size(); ++i) {
      std::vector<size_t> at;
      for (const int64_t j : sample_.columns) at.push_back(static_cast<size_t>(sample_.rows[i] * f.width + j));
      const std::span<const double> row = std::span(y).subspan(i * n, n);
      const double grown = growth(row, expected.y, at);
      for (size_t j = 0; j < n; ++j) {
        const double right = expected.y[at[j]], bound = grown * expected.bound[at[j]];
        if (!std::isfinite(right) || !std::isfinite(bound)) continue;  // nothing is known there
        const double error = difference(f.found[at[j]], row[j], right);
        const double error_before = difference(f.found[at[j]], right_[i * n + j], right);
        left += error * error;
        before += error_before * error_before;
        if (std::abs(error) > bound) match.within = false;
      }
    }
    if (before > 0) match.residual = std::sqrt(left / before);
    return match;
  }

 private:
  // A value that is no number counts as wrong by as much as the right one is large.
  static double difference(double found, double computed, double right) {
    if (std::isfinite(found) && std::isfinite(computed)) return found - computed;
    if (!std::isfinite(found) && !std::isfinite(computed)) return 0;
    return std::max(std::abs(right), std::sqrt(std::numeric_limits<double>::min()));
  }

  const Case& c_;
  Sample sample_;
  std::vector<double> right_;
};

struct Promising {
  double residual = 0;  // on the sample
  Candidate candidate;
};

// The best, in the order of the tables. Of those that are as good as the best, which differ by
// rounding alone, the first ones stay.
void keep_best(std::vector<Promising>& all) {
  if (all.size() <= kConfirmed) return;
  std::vector<double> residuals;
  for (const Promising& p : all) residuals.push_back(p.residual);
  std::sort(residuals.begin(), residuals.end());
  const double as_good = 2 * residuals[0], limit = residuals[kConfirmed - 1];
  std::vector<Promising> kept;
  for (const bool best : {true, false}) {
    for (Promising& p : all) {
      const bool is_best = p.residual <= as_good;
      if (is_best == best && p.residual <= std::max(limit, as_good) && kept.size() < kConfirmed)
        kept.push_back(std::move(p));
    }
  }
  all = std::move(kept);
}

// All of the output, or of a large product as much as is quickly done.
Sample confirming_sample(const FailedOp& f) {
  const int64_t depth = std::max<int64_t>(f.a_width, 1);
  if (f.n_rows * f.width * depth <= kConfirmWork) return {up_to(f.n_rows), up_to(f.width)};
  const int64_t n_rows = std::min<int64_t>(f.n_rows, 8);
  return choose_sample(f, n_rows, std::max<int64_t>(kSampleColumns, kConfirmWork / (n_rows * depth)));
}

// Best first. Residuals that differ by less than a factor of 2 are noise: there the order of the
// tables, likeliest first, stands.
void sort_causes(std::vector<Cause>& causes) {
  std::stable_sort(causes.begin(), causes.end(), [](const Cause& x, const Cause& y) {
    if (x.reproduces != y.reproduces) return x.reproduces;
    return !x.reproduces && x.residual < y.residual;
  });
  const auto end = std::find_if(causes.begin(), causes.end(), [](const Cause& x) { return !x.reproduces; });
  double best = std::numeric_limits<double>::infinity();
  for (auto cause = causes.begin(); cause != end; ++cause) best = std::min(best, cause->residual);
  const auto rest =
      std::stable_partition(causes.begin(), end, [best](const Cause& x) { return x.residual <= 2 * best; });
  std::stable_sort(rest, end, [](const Cause& x, const Cause& y) { return x.residual < y.residual; });
}

// Of found and right over all elements that are numbers, means kept: 1 the same direction, 0
// nothing in common.
double correlation(const FailedOp& f, std::span<const double> right) {
  double product = 0, found_squares = 0, right_squares = 0;
  for (size_t i = 0; i < f.found.size(); ++i) {
    if (!std::isfinite(f.found[i]) || !std::isfinite(right[i])) continue;
    product += f.found[i] * right[i];
    found_squares += f.found[i] * f.found[i];
    right_squares += right[i] * right[i];
  }
  return found_squares > 0 && right_squares > 0 ? product / std::sqrt(found_squares * right_squares) : 0;
}

// Where no entry explains a product at all, what can still be said of it: nothing is known of a
// weight that was never loaded.
void add_unrelated(const Case& c, std::vector<Cause>& causes) {
  constexpr size_t kEnough = 256;  // values, for a correlation to mean something
  constexpr double kUnrelated = 0.2;
  const FailedOp& f = c.failed;
  if (!causes.empty() || !c.op().is<ops::Linear>() || f.found.size() < kEnough) return;
  if (std::any_of(f.found.begin(), f.found.end(), [](double x) { return !std::isfinite(x); })) return;
  const double common = correlation(f, dictionary::sharpest(f).y);
  if (std::abs(common) > kUnrelated) return;
  causes.push_back({"unrelated_weight",
                    fmt::format("the output has nothing in common with the right one (correlation "
                                "{:.3f}), nor with that of any matrix of this shape in the "
                                "file: as of a weight that was never loaded, or is another file's",
                                common),
                    "C22", false, 1.0});
}

bool has_failed(const FailedOp& f) {
  for (size_t i = 0; i < f.found.size(); ++i) {
    if (ratio_at(f, i) > 1) return true;
  }
  return false;
}

bool is_complete(const FailedOp& f, const ops::Plan& plan) {
  const auto n = static_cast<size_t>(f.n_rows * f.width);
  return f.i_op >= 0 && static_cast<size_t>(f.i_op) < plan.ops.size() && n > 0 && f.found.size() == n &&
         f.expected.y.size() == n && f.expected.bound.size() == n &&
         f.positions.size() >= static_cast<size_t>(f.n_rows) && f.tokens.size() >= static_cast<size_t>(f.n_rows) &&
         (f.sequences.empty() || f.sequences.size() >= static_cast<size_t>(f.n_rows)) &&
         f.a.size() >= static_cast<size_t>(f.n_rows * f.a_width) &&
         f.b.size() >= static_cast<size_t>(f.n_rows * f.b_width);
}

}  // namespace

std::vector<Cause> find_causes(const ops::Plan& plan, const FailedOp& failed, const Declared& declared,
                               base::ThreadPool& pool) {
  if (!is_complete(failed, plan) || !has_failed(failed)) return {};
  const Case c{plan, failed, declared, pool};
  const Trial trial(c, choose_sample(failed, kSampleRows, kSampleColumns));
  std::vector<Promising> promising;
  dictionary::for_each_entry(c, [&](std::vector<Candidate> candidates) {
    for (Candidate& candidate : candidates) {
      const double residual = trial.match(candidate).residual;
      if (residual < kExplainsSome) promising.push_back({residual, std::move(candidate)});
    }
    keep_best(promising);
  });

  std::vector<Cause> causes;
  const Trial whole(c, confirming_sample(failed));
  for (const auto& [sampled, candidate] : promising) {
    const Match match = whole.match(candidate);
    if (match.residual >= kExplainsSome) continue;
    causes.push_back({candidate.id, candidate.text, candidate.faults, match.reproduces(), match.residual});
  }
  sort_causes(causes);
  add_unrelated(c, causes);
  return causes;
}

}  // namespace assay::faults
