// Perplexity and divergence, chunk by chunk: assay/perplexity.h. Two contexts go through a chunk together, a few
// positions at a time, so that no more than these positions' logits are held.
#include "assay/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/error.h"
#include "assay/score.h"
#include "engine/context_state.h"
#include "measure/distribution.h"
#include "num/math64.h"

namespace assay {
namespace {

constexpr int64_t kChunkMin = 3;  // the second half's last token predicts nothing, so that two tokens score none

struct RowScore {
  double nll = 0, base_nll = 0, kl_divergence = 0, probability_change = 0;
  bool same_top = true;
};

size_t best_of(std::span<const double> x) {  // the first of equal ones; never beyond the row, whatever is in it
  return static_cast<size_t>(std::max_element(x.begin(), x.end(), [](double a, double b) { return a < b; }) -
                             x.begin());
}

RowScore score_row(std::span<const double> logits, TokenId token) {
  RowScore row;
  row.nll = log_sum_exp(logits) - logits[static_cast<size_t>(token)];
  return row;
}

// sum p_base (log p_base - log p) = sum p_base (base - logits) - (log_sum_exp(base) - log_sum_exp(logits)): one
// exponential a value.
RowScore compare_row(std::span<const double> logits, std::span<const double> base, TokenId token) {
  const size_t best = best_of(logits), base_best = best_of(base);
  const double total = log_sum_exp(logits);
  constexpr size_t kLanes = 8;
  double weight[kLanes] = {}, distance[kLanes] = {};
  for (size_t i = 0; i < base.size(); ++i) {
    const double w = num::exp64(base[i] - base[base_best]);
    weight[i % kLanes] += w;
    if (w != 0)
      distance[i % kLanes] +=
          w * (base[i] - logits[i]);  // what the base rules out adds nothing, even where it is infinite
  }
  double weights = 0, distances = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    weights += weight[lane];
    distances += distance[lane];
  }
  const double base_total = base[base_best] + num::log64(weights);
  RowScore row;
  row.nll = total - logits[static_cast<size_t>(token)];
  row.base_nll = base_total - base[static_cast<size_t>(token)];
  // Zero is its least value; rounding may leave less.
  const double divergence = distances / weights - (base_total - total);
  row.kl_divergence = divergence < 0 ? 0 : divergence;
  row.probability_change = num::exp64(-row.nll) - num::exp64(-row.base_nll);
  row.same_top = best == base_best;
  return row;
}

bool is_finite(const RowScore& row) {
  return std::isfinite(row.nll) && std::isfinite(row.base_nll) && std::isfinite(row.kl_divergence);
}

// A context and the logits of the positions at work.
struct Side {
  Context* context = nullptr;
  std::vector<double> rows;

  bool skip(std::span<const TokenId> tokens, const RunRequest& request) {  // false: cancelled
    return context->decode(tokens, 0, request) == static_cast<int64_t>(tokens.size());
  }
  bool collect(std::span<const TokenId> tokens, const RunRequest& request) {
    rows.clear();
    const auto add = [&](int64_t, std::span<const double> logits) {
      rows.insert(rows.end(), logits.begin(), logits.end());
    };
    const int64_t n = context->decode_all(tokens, add, 0, request);
    return n == static_cast<int64_t>(tokens.size());
  }
  std::span<const double> row(int64_t i, int64_t width) const {
    return std::span(rows).subspan(static_cast<size_t>(i * width), static_cast<size_t>(width));
  }
};

std::optional<TokenId> first_token_of(const Context& context) {
  const auto& tokenizer = context.model().tokenizer();
  return tokenizer && tokenizer->adds_bos() ? tokenizer->bos() : std::nullopt;
}

class Run {
 public:
  Run(Context& context, Context* base, std::span<const TokenId> ids, const PerplexityOptions& options)
      : ids_(ids), options_(options), request_{.cancelled = options.cancelled}, pool_(context.state().pool),
        vocab_size_(context.model().vocab_size()) {
    sides_.push_back({&context, {}});
    if (base != nullptr) sides_.push_back({base, {}});
    n_rows_ = context.options().n_outputs_max;
    if (base != nullptr) n_rows_ = std::min(n_rows_, base->options().n_outputs_max);
    const int64_t n_rows = std::min(n_rows_, options.n_chunk);
    for (Side& side : sides_) side.rows.reserve(static_cast<size_t>(n_rows * vocab_size_));
    scores_.resize(static_cast<size_t>(n_rows));
    first_token_ = options.first_token ? options.first_token : first_token_of(context);
    const int64_t n_all = static_cast<int64_t>(ids.size()) / options.n_chunk;
    n_chunks_ = options.n_chunks_max > 0 ? std::min(options.n_chunks_max, n_all) : n_all;
  }

  PerplexityResult run() {
    int64_t n_done = 0;
    while (n_done < n_chunks_ && run_chunk(n_done)) ++n_done;
    PerplexityResult r;
    r.n_tokens = static_cast<int64_t>(ids_.size());
    r.n_chunks = n_done;
    r.n_chunks_asked = n_chunks_;
    fill(r);
    return r;
  }

 private:
  bool cancelled() const { return options_.cancelled && options_.cancelled(); }

  bool run_chunk(int64_t i_chunk) {
    const int64_t n = options_.n_chunk;
    const std::span<const TokenId> own = ids_.subspan(static_cast<size_t>(i_chunk * n), static_cast<size_t>(n));
    tokens_.assign(own.begin(), own.end());
    if (first_token_) tokens_.front() = *first_token_;
    const int64_t n_first = n / 2;
    for (Side& side : sides_) {
      side.context->clear();
      if (cancelled() || !side.skip(std::span(tokens_).first(static_cast<size_t>(n_first)), request_)) return false;
    }
    report(i_chunk, n_first);
    chunk_.clear();
    for (int64_t begin = n_first; begin < n - 1; begin += n_rows_) {
      if (!score_piece(begin, std::min(n_rows_, n - 1 - begin))) return false;
      if (begin + n_rows_ < n - 1) report(i_chunk, begin + n_rows_);
    }
    keep(i_chunk * n + n_first + 1);
    report(i_chunk, n - 1);
    return true;
  }

  bool score_piece(int64_t begin, int64_t n) {
    for (Side& side : sides_) {
      if (cancelled() ||
          !side.collect(std::span(tokens_).subspan(static_cast<size_t>(begin), static_cast<size_t>(n)), request_))
        return false;
    }
    pool_.run(n, [&](int64_t i, int) {
      const TokenId next = tokens_[static_cast<size_t>(begin + i + 1)];
      const std::span<const double> logits = sides_[0].row(i, vocab_size_);
      scores_[static_cast<size_t>(i)] =
          sides_.size() == 1 ? score_row(logits, next) : compare_row(logits, sides_[1].row(i, vocab_size_), next);
    });
    chunk_.insert(chunk_.end(), scores_.begin(), scores_.begin() + static_cast<std::ptrdiff_t>(n));
    return true;
  }

  // The scores of a whole chunk, whose first is that of the token at index.
  void keep(int64_t index) {
    for (const RowScore& row : chunk_) {
      nll_.push_back(row.nll);
      nll_sum_ += row.nll;
      if (!is_finite(row)) ++n_not_finite_;
      if (sides_.size() == 2) {
        base_nll_.push_back(row.base_nll);
        difference_.push_back(row.nll - row.base_nll);
        kl_divergence_.push_back(row.kl_divergence);
        probability_change_.push_back(row.probability_change);
        same_top_ += row.same_top ? 1 : 0;
      }
      if (options_.keep_tokens) {
        all_.push_back(
            {index, ids_[static_cast<size_t>(index)], row.nll, row.base_nll, row.kl_divergence, row.same_top});
      }
      ++index;
    }
  }

  void report(int64_t i_chunk, int64_t n_done) const {
    if (!options_.progress) return;
    const double so_far =
        nll_.empty() ? std::numeric_limits<double>::quiet_NaN() : std::exp(nll_sum_ / static_cast<double>(nll_.size()));
    options_.progress(i_chunk * (options_.n_chunk - 1) + n_done, n_chunks_ * (options_.n_chunk - 1), so_far);
  }

  void fill(PerplexityResult& r) {
    r.n_scored = static_cast<int64_t>(nll_.size());
    r.n_not_finite = n_not_finite_;
    r.compared = sides_.size() == 2;
    if (nll_.empty()) return;
    const measure::Mean nll = measure::mean_of(nll_);
    r.mean_nll = nll.value;
    r.mean_nll_error = nll.standard_error;
    r.perplexity = num::exp64(nll.value);
    r.perplexity_error = r.perplexity * nll.standard_error;
    r.tokens = std::move(all_);
    if (!r.compared) return;
    const measure::Mean base = measure::mean_of(base_nll_), difference = measure::mean_of(difference_);
    r.base_mean_nll = base.value;
    r.base_mean_nll_error = base.standard_error;
    r.base_perplexity = num::exp64(base.value);
    r.base_perplexity_error = r.base_perplexity * base.standard_error;
    r.log_ratio = difference.value;
    r.log_ratio_error = difference.standard_error;
    r.kl_divergence = measure::distribution_of(std::move(kl_divergence_));
    r.probability_change = measure::distribution_of(std::move(probability_change_));
    const double n = static_cast<double>(r.n_scored);
    r.same_top = static_cast<double>(same_top_) / n;
    r.same_top_error = r.n_scored > 1 ? std::sqrt(r.same_top * (1 - r.same_top) / (n - 1)) : 0;
  }

  std::span<const TokenId> ids_;
  const PerplexityOptions& options_;
  const RunRequest request_;
  base::ThreadPool& pool_;
  int64_t vocab_size_ = 0;
  int64_t n_rows_ = 0;  // positions whose logits are held at a time
  int64_t n_chunks_ = 0;
  std::optional<TokenId> first_token_;
  std::vector<Side> sides_;  // ours, and the base where there is one
  std::vector<TokenId> tokens_;
  std::vector<RowScore> scores_, chunk_;
  std::vector<double> nll_, base_nll_, difference_, kl_divergence_, probability_change_;
  double nll_sum_ = 0;
  int64_t same_top_ = 0, n_not_finite_ = 0;
  std::vector<PerplexityToken> all_;
};

void check_same_vocabulary(const Model& model, const Model& base) {
  if (model.vocab_size() != base.vocab_size()) {
    throw Error(Errc::bad_request, fmt::format("{}: needs the vocabulary of {}, which has {} tokens, found {}",
                                               base.path(), model.path(), model.vocab_size(), base.vocab_size()));
  }
  if (!model.tokenizer() || !base.tokenizer() || model.tokenizer() == base.tokenizer()) return;
  for (TokenId id = 0; id < model.vocab_size(); ++id) {
    if (model.tokenizer()->text(id) == base.tokenizer()->text(id)) continue;
    throw Error(Errc::bad_request,
                fmt::format("{}: needs the vocabulary of {}, whose token {} is \"{}\", found \"{}\"", base.path(),
                            model.path(), id, model.tokenizer()->text(id), base.tokenizer()->text(id)));
  }
}

void check_ids(const Model& model, std::span<const TokenId> ids, const PerplexityOptions& options) {
  const auto is_known = [&](TokenId id) { return id >= 0 && id < model.vocab_size(); };
  const int64_t id_max = model.vocab_size() - 1;
  if (options.first_token && !is_known(*options.first_token)) {
    throw Error(Errc::bad_request, fmt::format("first token of the chunks: needs an id from 0 to {}, found {}", id_max,
                                               *options.first_token));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!is_known(ids[i]))
      throw Error(Errc::bad_request,
                  fmt::format("token {} of the text: needs an id from 0 to {}, found {}", i, id_max, ids[i]));
  }
}

void check_fits(const Context& context, int64_t n_chunk) {
  if (n_chunk > context.n_ctx()) {
    throw Error(Errc::bad_request,
                fmt::format("perplexity: chunks of {} tokens need a context of as many, found one of {} positions",
                            n_chunk, context.n_ctx()));
  }
}

}  // namespace

PerplexityResult perplexity(Context& context, Context* base, std::span<const TokenId> ids,
                            const PerplexityOptions& options) {
  if (options.n_chunk < kChunkMin) {
    throw Error(Errc::bad_request, fmt::format("perplexity: needs chunks (-c) of {} tokens or more, found {}",
                                               kChunkMin, options.n_chunk));
  }
  if (options.n_chunks_max < 0)
    throw Error(Errc::bad_request, fmt::format("perplexity: {} chunks were asked for", options.n_chunks_max));
  const int64_t n_tokens = static_cast<int64_t>(ids.size());
  if (n_tokens / 2 < options.n_chunk) {
    throw Error(
        Errc::bad_request,
        fmt::format("perplexity: chunks (-c) of {} tokens need a text of two chunks or more, {} tokens; found one "
                    "of {}",
                    options.n_chunk, 2 * static_cast<uint64_t>(options.n_chunk), n_tokens));
  }
  check_ids(context.model(), ids, options);
  check_fits(context, options.n_chunk);
  if (base == &context)
    throw Error(Errc::bad_request, "perplexity: a context cannot be its own base, both hold a cache");
  if (base != nullptr) {
    check_fits(*base, options.n_chunk);
    check_same_vocabulary(context.model(), base->model());
  }
  return Run(context, base, ids, options).run();
}

}  // namespace assay
