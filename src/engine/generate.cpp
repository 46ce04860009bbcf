// The loop of generation.
#include "assay/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "assay/error.h"
#include "engine/best_follows.h"
#include "engine/cancel_scope.h"
#include "engine/stop_strings.h"

namespace assay {
namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

Sampler make_sampler(const Model& model, const GenerateOptions& options) {
  SamplerOptions sampling = options.sampling;
  const auto& tokenizer = model.tokenizer();
  if (options.ignore_eos && tokenizer) {
    for (TokenId id : tokenizer->end_of_generation())
      sampling.logit_bias.push_back({id, -std::numeric_limits<float>::infinity()});
  }
  Sampler::TokenText text;
  if (tokenizer) text = [tokenizer](TokenId id) { return tokenizer->piece(id); };
  return Sampler(sampling, model.vocab_size(), std::move(text));
}

// The text side of an answer: ids in, certain text out. Without a tokenizer there is no text.
class Text {
 public:
  Text(const Model& model, const GenerateOptions& options, const Generator::TextSink& sink,
       std::string& out)
      : stop_(options.stop), sink_(sink), out_(out) {
    if (model.tokenizer()) decoder_.emplace(model.tokenizer(), options.special);
  }
  const std::string* push(TokenId id) {  // the stop string that this token completed
    if (decoder_) {
      part_.clear();
      shown_.clear();
      decoder_->push(id, part_);
      stop_.push(part_, shown_);
      show(shown_);
    }
    return stop_.matched();
  }
  const std::string* finish() {
    if (decoder_) show(stop_.push(decoder_->finish()));
    show(stop_.finish());
    return stop_.matched();
  }

 private:
  void show(const std::string& text) {
    if (text.empty()) return;
    out_ += text;
    if (sink_) sink_(text);
  }

  engine::StopStrings stop_;
  const Generator::TextSink& sink_;
  std::string& out_;
  std::optional<StreamDecoder> decoder_;
  std::string part_, shown_;  // of one token; kept, so that a token takes no memory
};

}  // namespace

std::string_view name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "";
}

Generator::Generator(Context& context, int sequence) : context_(&context), sequence_(sequence) {}

// Runs what the cache does not hold yet, all but the last token at least; returns how many of the
// prompt's tokens are in the cache now.
int64_t Generator::prefill(std::span<const TokenId> prompt, Generation& result) {
  const auto size = static_cast<int64_t>(prompt.size());
  if (size == 0) throw Error(Errc::bad_request, "the prompt is empty");
  if (size > context_->n_ctx()) {
    throw Error(Errc::bad_request,
                fmt::format("the prompt has {} tokens, the context holds {}: raise it with -c {}",
                            size, context_->n_ctx(), size + 256));
  }
  if (context_->n_past(sequence_) != static_cast<int64_t>(cached_.size()))
    cached_.clear();  // someone else used the sequence
  const auto common =
      std::mismatch(cached_.begin(), cached_.end(), prompt.begin(), prompt.end()).first -
      cached_.begin();
  const int64_t n_cached = std::min<int64_t>(common, size - 1);
  context_->truncate(n_cached, sequence_);
  cached_.resize(static_cast<size_t>(n_cached));
  result.n_prompt = size;
  result.n_prompt_cached = n_cached;
  const auto start = std::chrono::steady_clock::now();
  result.prefill.tokens =
      context_->decode(prompt.subspan(static_cast<size_t>(n_cached)), sequence_);
  result.prefill.ms = ms_since(start);
  cached_.assign(prompt.begin(),
                 prompt.begin() + static_cast<std::ptrdiff_t>(n_cached + result.prefill.tokens));
  return n_cached + result.prefill.tokens;
}

Generation Generator::run(std::span<const TokenId> prompt, const GenerateOptions& options,
                          const TextSink& sink, const std::function<bool()>& cancelled) {
  const Model& model = context_->model();
  const bool wants_logprobs = options.n_top_logprobs >= 0;
  if (options.n_top_logprobs > model.vocab_size()) {
    throw Error(Errc::bad_request, fmt::format("{} top logprobs: the vocabulary has {} tokens",
                                               options.n_top_logprobs, model.vocab_size()));
  }
  Generation result;
  Sampler sampler = make_sampler(model, options);
  Text text(model, options, sink, result.text);
  // Log-probabilities need all logits.
  const bool is_ranked = !wants_logprobs && sampler.n_ranked() > 0 && context_->set_n_ranked(sampler.n_ranked());
  if (!is_ranked) context_->set_n_ranked(0);
  const bool is_best = is_ranked && sampler.n_ranked() == 1;
  engine::BestFollows best_follows(*context_);
  const engine::CancelScope scope(*context_, cancelled);
  const auto is_cancelled = [&] { return cancelled && cancelled(); };
  if (prefill(prompt, result) < result.n_prompt) {
    result.finish_reason = FinishReason::cancelled;
    return result;
  }
  sampler.start(prompt, options.request);
  const auto start = std::chrono::steady_clock::now();
  const auto n_predict =
      options.n_predict < 0 ? std::numeric_limits<int64_t>::max() : options.n_predict;
  while (static_cast<int64_t>(result.ids.size()) < n_predict) {
    if (is_cancelled()) {
      result.finish_reason = FinishReason::cancelled;
      break;
    }
    if (!result.ids.empty()) {  // the last token drawn is not in the cache yet
      if (context_->n_past(sequence_) == context_->n_ctx()) {
        result.context_full = true;
        break;
      }
      const TokenId last = result.ids.back();
      // The token drawn after this one is run, too, unless it is the last. Where it ends the
      // answer, a run was for nothing, which whoever comes next waits for.
      best_follows.set(is_best && static_cast<int64_t>(result.ids.size()) + 1 < n_predict);
      if (context_->decode({&last, 1}, sequence_) == 0) {
        result.finish_reason = FinishReason::cancelled;
        break;
      }
      cached_.push_back(last);
      result.decode.tokens += 1;
    }
    const auto position = static_cast<int64_t>(prompt.size() + result.ids.size());
    const std::span<const RankedLogit> best =
        is_ranked ? context_->ranked() : std::span<const RankedLogit>();
    const TokenId id = best.empty() ? sampler.sample(context_->logits(), position)
                                    : sampler.sample(best, position);
    sampler.accept(id);
    if (wants_logprobs) {
      result.logprobs.push_back(token_logprobs(context_->logits_double(), id, options.n_top_logprobs));
    }
    result.ids.push_back(id);
    const bool ends =
        options.stop_at_end && model.tokenizer() && model.tokenizer()->is_end_of_generation(id);
    if (ends || text.push(id)) {
      result.finish_reason = FinishReason::stop;
      break;
    }
  }
  if (const std::string* stop = text.finish()) {
    result.finish_reason = FinishReason::stop;
    result.stop_string = *stop;
  }
  result.decode.ms = ms_since(start);
  return result;
}

}  // namespace assay
