// The sampling chain: which step runs when, over which list.
#include "assay/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "assay/error.h"
#include "engine/sampling/dry.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/sampling_steps.h"

namespace assay {
namespace {

void require_range(bool ok, const char* option, double value, const char* range) {
  if (!ok) throw Error(Errc::bad_request, fmt::format("{} is {}, needs {}", option, value, range));
}

bool within(double x, double least, double most) noexcept {  // false for NaN
  return x >= least && x <= most;
}

// Large enough for every use, small enough that no float arithmetic on a logit overflows.
constexpr double kPenaltyMax = 1e6;

constexpr size_t kAnswerTokens = 4096;  // room that is taken before the first token is drawn

std::span<const TokenId> last(const std::vector<TokenId>& history, int64_t n) noexcept {
  const size_t size = n < 0 ? history.size() : std::min(static_cast<size_t>(n), history.size());
  return std::span<const TokenId>(history).last(size);
}

}  // namespace

void check(const SamplerOptions& o) {
  require_range(within(o.temperature, -1e6, 1e6), "temperature", o.temperature, "a number of at most 1e6");
  require_range(within(o.dynamic_range, 0, 1e6), "dynamic temperature range", o.dynamic_range,
                "a number from 0 to 1e6");
  require_range(within(o.dynamic_exponent, 0, 1e3), "dynamic temperature exponent", o.dynamic_exponent,
                "a number from 0 to 1000");
  require_range(within(o.top_p, 0, 1e6), "top-p", o.top_p, "a number of at least 0");
  require_range(within(o.min_p, -1e6, 1), "min-p", o.min_p, "a number of at most 1");
  require_range(within(o.typical_p, 0, 1e6), "typical-p", o.typical_p, "a number of at least 0");
  require_range(within(o.top_n_sigma, -1e6, 1e6), "top-n-sigma", o.top_n_sigma, "a number of at most 1e6");
  require_range(within(o.xtc_probability, 0, 1), "xtc probability", o.xtc_probability, "a number from 0 to 1");
  require_range(within(o.xtc_threshold, 0, 1), "xtc threshold", o.xtc_threshold, "a number from 0 to 1");
  require_range(o.penalty_last_n >= -1, "repeat last n", static_cast<double>(o.penalty_last_n),
                "a count, 0 (off) or -1 (all)");
  require_range(within(o.repeat_penalty, 1 / kPenaltyMax, kPenaltyMax), "repeat penalty", o.repeat_penalty,
                "a number above 0 (1e-6 to 1e6)");
  require_range(within(o.frequency_penalty, -kPenaltyMax, kPenaltyMax), "frequency penalty", o.frequency_penalty,
                "a number from -1e6 to 1e6");
  require_range(within(o.presence_penalty, -kPenaltyMax, kPenaltyMax), "presence penalty", o.presence_penalty,
                "a number from -1e6 to 1e6");
  require_range(within(o.dry_multiplier, 0, kPenaltyMax), "dry multiplier", o.dry_multiplier, "a number from 0 to 1e6");
  require_range(within(o.dry_base, 1, kPenaltyMax), "dry base", o.dry_base, "a number from 1 to 1e6");
  require_range(o.dry_allowed_length >= 1, "dry allowed length", static_cast<double>(o.dry_allowed_length),
                "a count of at least 1");
  require_range(o.dry_penalty_last_n >= -1, "dry last n", static_cast<double>(o.dry_penalty_last_n),
                "a count, 0 (off) or -1 (all)");
  for (const std::string& breaker : o.dry_sequence_breakers) {
    require_range(!breaker.empty() && breaker.size() <= 256, "length of a dry sequence breaker",
                  static_cast<double>(breaker.size()), "1 to 256 bytes");
  }
  for (const LogitBias& b : o.logit_bias) {
    require_range(b.bias <= kPenaltyMax && (b.bias >= -kPenaltyMax || std::isinf(b.bias)), "logit bias", b.bias,
                  "a number from -1e6 to 1e6, or -inf");
  }
}

struct Sampler::State {
  SamplerOptions options;
  int64_t vocab_size = 0;
  engine::Dry dry;
  bool penalises = false, moves_logits = false;  // the latter: a step changes a logit, or leaves it out by the others
  std::vector<TokenId> forbidden;                // by a bias of minus infinity, ascending
  uint64_t request = 0;
  std::vector<TokenId> history;
  std::vector<float> logits;  // a copy to change, where a step changes any
  std::vector<TokenId> scratch;
  engine::Candidates candidates;

  State(const SamplerOptions& o, TokenText token_text) : options(o), dry(o, std::move(token_text)) {}

  bool typical() const noexcept { return options.typical_p < 1; }
  bool xtc() const noexcept { return options.xtc_probability > 0 && options.xtc_threshold <= 0.5; }
  // Whether the chain keeps the best token whatever else it does.
  bool greedy() const noexcept {
    return options.temperature <= 0 && options.dynamic_range <= 0 && !typical() && !xtc();
  }
  bool adjusts() const noexcept { return !options.logit_bias.empty() || moves_logits; }
  bool has_top_k() const noexcept { return options.top_k > 0 && options.top_k < vocab_size; }

  std::span<const float> adjust(std::span<const float> raw);
  TokenId keep(TokenId id, std::span<const float> adjusted);
  TokenId choose(std::span<const float> adjusted, int64_t position);
  TokenId draw_from_candidates(bool whole, bool ranked, int64_t position);
};

Sampler::Sampler(const SamplerOptions& options, int64_t vocab_size, TokenText token_text) {
  check(options);
  for (const LogitBias& b : options.logit_bias) {
    if (b.token < 0 || b.token >= vocab_size) {
      throw Error(Errc::bad_request,
                  fmt::format("logit bias for token {}: the vocabulary has ids 0 to {}", b.token, vocab_size - 1));
    }
  }
  state_ = std::make_unique<State>(options, std::move(token_text));
  state_->vocab_size = vocab_size;
  state_->penalises = options.penalty_last_n != 0 &&
                      (options.repeat_penalty != 1 || options.frequency_penalty != 0 || options.presence_penalty != 0);
  state_->moves_logits = state_->penalises || state_->dry.active() || options.top_n_sigma > 0;
  for (const LogitBias& b : options.logit_bias) {
    if (std::isinf(b.bias)) {
      state_->forbidden.push_back(b.token);
    } else {
      state_->moves_logits = true;
    }
  }
  std::sort(state_->forbidden.begin(), state_->forbidden.end());
  state_->candidates.reserve(static_cast<size_t>(options.top_k > 0 ? std::min(options.top_k, vocab_size) : vocab_size));
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

void Sampler::start(std::span<const TokenId> prompt, uint64_t request) {
  state_->request = request;
  state_->history.clear();
  state_->history.reserve(2 * prompt.size() + kAnswerTokens);
  if (state_->penalises) {
    const size_t all = state_->history.capacity();
    const int64_t window = state_->options.penalty_last_n;
    state_->scratch.reserve(window < 0 ? all : std::min(static_cast<size_t>(window), all));
  }
  state_->dry.clear();
  for (TokenId token : prompt) accept(token);
}

void Sampler::accept(TokenId token) {
  if (token < 0 || token >= state_->vocab_size) {
    throw Error(Errc::bad_request,
                fmt::format("token {}: the vocabulary has ids 0 to {}", token, state_->vocab_size - 1));
  }
  state_->history.push_back(token);
  if (state_->dry.active()) state_->dry.accept(token);
}

std::span<const float> Sampler::State::adjust(std::span<const float> raw) {
  if (!adjusts()) return raw;
  logits.assign(raw.begin(), raw.end());
  for (const LogitBias& b : options.logit_bias) logits[static_cast<size_t>(b.token)] += b.bias;
  if (penalises) {
    engine::apply_penalties(logits, last(history, options.penalty_last_n), static_cast<float>(options.repeat_penalty),
                            static_cast<float>(options.frequency_penalty), static_cast<float>(options.presence_penalty),
                            scratch);
  }
  if (dry.active()) dry.apply(history, logits);
  if (options.top_n_sigma > 0) engine::top_n_sigma(logits, options.top_n_sigma);
  return logits;
}

// The one candidate there is.
TokenId Sampler::State::keep(TokenId id, std::span<const float> adjusted) {
  candidates.assign(1, {id, adjusted[static_cast<size_t>(id)], 1});
  return id;
}

TokenId Sampler::State::choose(std::span<const float> adjusted, int64_t position) {
  const float best = engine::checked_max(adjusted);
  if (greedy()) return keep(engine::first_equal(adjusted, best), adjusted);
  candidates.clear();
  const bool whole = !typical() && !has_top_k();  // the first step left sees every token
  bool ranked = whole && options.top_p < 1;
  if (ranked) {
    engine::select_top_p(adjusted, best, options.top_p, candidates);
  } else if (whole && options.min_p > 0) {
    engine::select_min_p(adjusted, best, options.min_p, candidates);
  } else {
    ranked = engine::select_top_k(adjusted, options.top_k, candidates);
  }
  return draw_from_candidates(whole, ranked, position);
}

TokenId Sampler::State::draw_from_candidates(bool whole, bool ranked, int64_t position) {
  const engine::Draws draw = engine::draws(options.seed, request, static_cast<uint64_t>(position));
  if (typical()) {
    engine::typical(candidates, options.typical_p);
    ranked = true;
  }
  if (!whole && options.top_p < 1) {
    engine::top_p(candidates, options.top_p, ranked);
    ranked = true;
  }
  if (options.min_p > 0) engine::min_p(candidates, options.min_p);
  if (xtc() &&
      (ranked || !engine::xtc_unranked(candidates, options.xtc_probability, options.xtc_threshold, draw.xtc))) {
    if (!ranked) engine::rank(candidates);
    engine::xtc(candidates, options.xtc_probability, options.xtc_threshold, draw.xtc);
    ranked = true;
  }
  engine::temperature(candidates, options.temperature, options.dynamic_range, options.dynamic_exponent);
  if (ranked) engine::order_by_id(candidates);
  engine::softmax(candidates);
  return engine::pick(candidates, draw.token);
}

TokenId Sampler::sample(std::span<const float> logits, int64_t position) {
  if (static_cast<int64_t>(logits.size()) != state_->vocab_size) {
    throw Error(Errc::bad_request, fmt::format("{} logits for a vocabulary of {}", logits.size(), state_->vocab_size));
  }
  State& s = *state_;
  if (s.greedy() && !s.moves_logits) {  // the best of all, where none of the forbidden is; without a copy of them
    const RankedLogit best = {argmax(logits), 0};
    if (decides({&best, 1})) return s.keep(best.id, logits);
  }
  return s.choose(s.adjust(logits), position);
}

int64_t Sampler::n_ranked() const noexcept {
  if (state_->moves_logits) return 0;
  return state_->greedy() ? 1 : state_->has_top_k() ? state_->options.top_k : 0;
}

// The best of all are the best of what is left where none of them is forbidden.
bool Sampler::decides(std::span<const RankedLogit> ranked) const noexcept {
  const std::vector<TokenId>& forbidden = state_->forbidden;
  return std::none_of(ranked.begin(), ranked.end(), [&](const RankedLogit& x) {
    return std::binary_search(forbidden.begin(), forbidden.end(), x.id);
  });
}

TokenId Sampler::sample(std::span<const RankedLogit> ranked, int64_t position) {
  const int64_t n = n_ranked();
  if (!decides(ranked)) throw Error(Errc::bad_request, "a forbidden token among the best: all logits are needed");
  if (ranked.empty() || static_cast<int64_t>(ranked.size()) > n) {
    throw Error(Errc::bad_request, fmt::format("{} best logits for a chain that needs {}", ranked.size(), n));
  }
  engine::Candidates& candidates = state_->candidates;
  candidates.clear();
  for (const RankedLogit& x : ranked) candidates.push_back({x.id, x.logit, 1});
  return state_->greedy() ? candidates.front().id : state_->draw_from_candidates(false, true, position);
}

std::span<const Candidate> Sampler::candidates() const noexcept { return state_->candidates; }

TokenId argmax(std::span<const float> logits) { return engine::first_equal(logits, engine::checked_max(logits)); }

}  // namespace assay
