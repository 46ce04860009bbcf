// See answer.h.
#include "engine/sampling/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "assay/error.h"

namespace assay::engine {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

Sampler make_sampler(const Model& model, const GenerateOptions& options) {
  SamplerOptions sampling = options.sampling;
  const auto& tokenizer = model.tokenizer();
  if (options.ignore_eos && tokenizer) {
    for (TokenId id : tokenizer->end_of_generation()) sampling.logit_bias.push_back({id, kForbidden});
  }
  Sampler::TokenText text;
  if (tokenizer) text = [tokenizer](TokenId id) { return tokenizer->piece(id); };
  return Sampler(sampling, model.vocab_size(), std::move(text));
}

}  // namespace

Answer::Answer(const Model& model, const GenerateOptions& options)
    : model_(&model), stop_at_end_(options.stop_at_end), stop_ids_(options.stop_ids), request_(options.request),
      n_top_logprobs_(options.n_top_logprobs), mask_(options.mask), visible_(options.visible),
      sampler_(make_sampler(model, options)), stop_(options.stop) {
  for (const TokenId id : stop_ids_) {
    if (id >= 0 && id < model.vocab_size()) continue;
    throw Error(Errc::bad_request,
                fmt::format("stop id {}: the vocabulary has ids 0 to {}", id, model.vocab_size() - 1));
  }
  if (n_top_logprobs_ > model.vocab_size()) {
    throw Error(Errc::bad_request,
                fmt::format("{} top logprobs: the vocabulary has {} tokens", n_top_logprobs_, model.vocab_size()));
  }
  if (model.tokenizer()) decoder_.emplace(model.tokenizer(), options.special);
}

int64_t Answer::n_ranked() const noexcept { return n_top_logprobs_ >= 0 ? 0 : sampler_.n_ranked(); }

void Answer::start(std::span<const TokenId> prompt) {
  sampler_.start(prompt, request_);
  n_prompt_ = static_cast<int64_t>(prompt.size());
}

// Enough words, with a token of the vocabulary among them; none at all allow everything.
std::span<const uint64_t> Answer::checked(std::span<const uint64_t> allowed) const {
  const auto size = static_cast<size_t>(model_->vocab_size());
  if (allowed.empty()) return allowed;
  if (allowed.size() * 64 < size) {
    throw Error(Errc::bad_request, fmt::format("a mask of {} words for a vocabulary of {}", allowed.size(), size));
  }
  const std::span<const uint64_t> whole = allowed.first(size / 64);
  const uint64_t rest = size % 64 == 0 ? 0 : allowed[size / 64] & ((uint64_t{1} << (size % 64)) - 1);
  if (rest == 0 && std::all_of(whole.begin(), whole.end(), [](uint64_t word) { return word == 0; })) {
    throw Error(Errc::bad_request,
                fmt::format("token {} of the answer: the constraint leaves no token of the vocabulary", ids_.size()));
  }
  return allowed;
}

std::span<const uint64_t> Answer::look_ahead() noexcept {
  if (is_asked_ || !mask_) return allowed_;
  is_asked_ = true;
  try {
    allowed_ = checked(mask_(ids_));
  } catch (...) {
    failure_ = std::current_exception();
  }
  return allowed_;
}

std::span<const uint64_t> Answer::take_allowed() {
  look_ahead();
  is_asked_ = false;
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::exchange(allowed_, {});
}

std::span<const float> Answer::masked(std::span<const float> logits, std::span<const uint64_t> allowed) {
  row_.assign(logits.begin(), logits.end());
  for (size_t id = 0; id < row_.size(); ++id) {
    if ((allowed[id / 64] >> (id % 64) & 1) == 0) row_[id] = kForbidden;
  }
  return row_;
}

TokenId Answer::draw(std::span<const float> logits, std::span<const double> wide) {
  const int64_t position = n_prompt_ + static_cast<int64_t>(ids_.size());
  const std::span<const uint64_t> allowed = take_allowed();
  const TokenId id = sampler_.sample(allowed.empty() ? logits : masked(logits, allowed), position);
  if (n_top_logprobs_ >= 0) logprobs_ = token_logprobs(wide, id, n_top_logprobs_);
  return accept(id);
}

TokenId Answer::draw(std::span<const RankedLogit> best) {
  take_allowed();  // which they are of
  return accept(sampler_.sample(best, n_prompt_ + static_cast<int64_t>(ids_.size())));
}

TokenId Answer::accept(TokenId id) {
  sampler_.accept(id);
  ids_.push_back(id);
  shown_.clear();
  ended_ = (stop_at_end_ && model_->tokenizer() && model_->tokenizer()->is_end_of_generation(id)) ||
           std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
  if (!ended_ && decoder_) {
    part_.clear();
    if (std::find(visible_.begin(), visible_.end(), id) != visible_.end()) {
      model_->tokenizer()->append_piece(id, part_);
    } else {
      decoder_->push(id, part_);
    }
    stop_.push(part_, shown_);
    ended_ = stop_.matched() != nullptr;
  }
  return id;
}

std::string_view Answer::finish() {
  shown_ = stop_.finish();  // bytes of a character that was not finished are dropped
  return shown_;
}

}  // namespace assay::engine
