// See source_watch.h.
#include "verify/source_watch.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "ops/plan/op_values.h"

namespace assay::verify {

std::optional<BitsDifference> first_difference(const RowBits& a, const RowBits& b) {
  for (size_t i_op = 0; i_op < std::min(a.size(), b.size()); ++i_op) {
    const size_t n = std::min(a[i_op].size(), b[i_op].size());
    for (size_t i = 0; i < n; ++i) {
      if (a[i_op][i] != 0 && b[i_op][i] != 0 && a[i_op][i] != b[i_op][i]) return BitsDifference{i_op, i};
    }
  }
  return std::nullopt;
}

SourceWatch::SourceWatch(const ops::Plan& plan, const trace::Declared& declared, int64_t n_ctx, int n_sequences,
                         base::ThreadPool& pool)
    : plan_(plan), checker_(plan, declared, n_ctx, n_sequences, pool), bits_(plan.ops.size()) {
  for (size_t i = 0; i < plan.ops.size(); ++i) indices_.emplace(plan.ops[i].name, i);
}

void SourceWatch::begin(const ops::Batch& batch) {
  rows_all_.clear();
  rows_outputs_.clear();
  n_batch_ = batch.tokens.size();
  for (size_t i = 0; i < n_batch_; ++i) {
    rows_all_.push_back(n_tokens_ + i);
    if (batch.outputs[i] != 0) rows_outputs_.push_back(n_tokens_ + i);
  }
  logits_.clear();
  checker_.begin(batch);
}

void SourceWatch::on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) {
  const auto found = indices_.find(op.name);
  if (found == indices_.end()) return;  // an op of another plan; the checker would not know it either
  const ops::Op& own = plan_.ops[found->second];
  remember_bits(found->second, n_rows, width, values);
  if (ops::values_of(own).output == plan_.output()) logits_.assign(values.begin(), values.end());
  if (checker_.wants(own)) checker_.on_op(own, n_rows, width, values);
}

void SourceWatch::remember_bits(size_t i_op, int64_t n_rows, int64_t width, std::span<const double> values) {
  const ops::Value& value = plan_.values[static_cast<size_t>(ops::announced_value(plan_.ops[i_op]))];
  const std::vector<size_t>& rows = value.domain.is_of_outputs() ? rows_outputs_ : rows_all_;
  const size_t n_ranks = static_cast<size_t>(value.domain.n_ranks), n = static_cast<size_t>(width) * n_ranks;
  if (static_cast<size_t>(n_rows) != rows.size() * n_ranks) return;
  std::vector<uint64_t>& hashes = bits_[i_op];
  hashes.resize(n_tokens_ + n_batch_);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span<const double> row = values.subspan(i * n, n);  // of a token: all ranks
    hashes[rows[i]] = XXH3_64bits(row.data(), row.size_bytes()) | 1;
  }
}

void SourceWatch::end() {
  checker_.end();
  n_tokens_ += n_batch_;
  const std::span<const double> chain = checker_.chain_logits();
  if (logits_.size() != chain.size()) return;  // none were announced
  for (size_t i = 0; i < chain.size(); ++i) {
    error_squares_ += (logits_[i] - chain[i]) * (logits_[i] - chain[i]);
    chain_squares_ += chain[i] * chain[i];
  }
  has_logits_ = has_logits_ || !chain.empty();
}

SourceFigures SourceWatch::figures(std::string name) const {
  SourceFigures figures;
  figures.name = std::move(name);
  figures.first_failure = checker_.place();
  figures.ops = checker_.figures();
  figures.logits_error = has_logits_ ? std::sqrt(error_squares_ / std::max(chain_squares_, 1e-300)) : -1;
  return figures;
}

}  // namespace assay::verify
