// The loop of generation.
#include "assay/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "assay/error.h"
#include "engine/answer.h"
#include "engine/best_follows.h"
#include "engine/cancel_scope.h"

namespace assay {
namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

std::string_view name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::late:
      return "late";
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
                fmt::format("the prompt has {} tokens, the context holds {}: an n_ctx of {} has room for both prompt and answer",
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

MakeRoom drop_older_half(int64_t n_keep, int64_t n_ctx) {
  if (n_keep < 0 || n_keep > n_ctx - 2) {
    throw Error(Errc::bad_request, fmt::format("{} tokens to keep of a context of {}: needs 0 to {}, so that something can be dropped",
                                               n_keep, n_ctx, n_ctx - 2));
  }
  return [n_keep](std::span<const TokenId> in_context, std::span<const TokenId>) {
    const auto first = static_cast<size_t>(n_keep);
    const size_t n_drop = (in_context.size() - first) / 2;
    std::vector<TokenId> tokens(in_context.begin(), in_context.begin() + static_cast<std::ptrdiff_t>(first));
    tokens.insert(tokens.end(), in_context.begin() + static_cast<std::ptrdiff_t>(first + n_drop), in_context.end());
    return tokens;
  };
}

// Runs the token drawn last; where the context is full, with what room is made for it.
Generator::Step Generator::run_drawn(std::span<const TokenId> answer, Generation& result) {
  const TokenId last = answer.back();
  if (context_->n_past(sequence_) < context_->n_ctx()) {
    if (context_->decode({&last, 1}, sequence_) == 0) return Step::cancelled;
    cached_.push_back(last);
    result.decode.tokens += 1;
    return Step::ran;
  }
  if (!make_room_) return Step::full;
  std::vector<TokenId> all = cached_;
  all.push_back(last);
  const std::vector<TokenId> next = make_room_(all, answer);
  if (next.empty()) return Step::full;
  Generation anew;
  const int64_t n_run = prefill(next, anew);
  result.decode.tokens += anew.prefill.tokens;
  result.n_dropped += static_cast<int64_t>(all.size()) - static_cast<int64_t>(next.size());
  return n_run < anew.n_prompt ? Step::cancelled : Step::ran;
}

Generation Generator::run(std::span<const TokenId> prompt, const GenerateOptions& options,
                          const TextSink& sink, const std::function<bool()>& cancelled) {
  Generation result;
  engine::Answer answer(context_->model(), options);
  const auto show = [&](std::string_view text) {
    if (text.empty()) return;
    result.text += text;
    if (sink) sink(text);
  };
  const bool is_ranked = answer.n_ranked() > 0 && context_->set_n_ranked(answer.n_ranked());
  if (!is_ranked) context_->set_n_ranked(0);
  const bool is_best = is_ranked && answer.n_ranked() == 1;
  engine::BestFollows best_follows(*context_);
  const engine::CancelScope scope(*context_, cancelled);
  const auto is_cancelled = [&] { return cancelled && cancelled(); };
  if (prefill(prompt, result) < result.n_prompt) {
    result.finish_reason = FinishReason::cancelled;
    return result;
  }
  answer.start(prompt);
  const auto start = std::chrono::steady_clock::now();
  const auto n_predict =
      options.n_predict < 0 ? std::numeric_limits<int64_t>::max() : options.n_predict;
  while (static_cast<int64_t>(answer.ids().size()) < n_predict) {
    if (is_cancelled()) {
      result.finish_reason = FinishReason::cancelled;
      break;
    }
    if (!answer.ids().empty()) {  // the last token drawn is not in the cache yet
      const bool is_full = context_->n_past(sequence_) == context_->n_ctx();
      // The token drawn after this one is run, too, unless it is the last. Where it ends the
      // answer, a run was for nothing, which whoever comes next waits for.
      best_follows.set(is_best && !is_full &&
                       static_cast<int64_t>(answer.ids().size()) + 1 < n_predict);
      const Step step = run_drawn(answer.ids(), result);
      result.context_full = step == Step::full;
      if (step == Step::cancelled) result.finish_reason = FinishReason::cancelled;
      if (step != Step::ran) break;
    }
    const std::span<const RankedLogit> best =
        is_ranked ? context_->ranked() : std::span<const RankedLogit>();
    if (!best.empty()) {
      answer.draw(best);
    } else {
      answer.draw(context_->logits(), answer.wants_wide() ? context_->logits_double() : std::span<const double>());
    }
    if (answer.logprobs()) result.logprobs.push_back(*answer.logprobs());
    show(answer.shown());
    if (answer.ended()) {
      result.finish_reason = FinishReason::stop;
      break;
    }
  }
  show(answer.finish());
  if (const std::string* stop = answer.stop_string()) {
    result.finish_reason = FinishReason::stop;
    result.stop_string = *stop;
  }
  result.ids = answer.take_ids();
  result.decode.ms = ms_since(start);
  return result;
}

}  // namespace assay
