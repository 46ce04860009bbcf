// The loop of generation.
#include "assay/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "assay/error.h"
#include "engine/context_state.h"
#include "engine/sampling/answer.h"

namespace assay {
namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string_view name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::late: return "late";
  }
  return "";
}

Generator::Generator(Context& context, int sequence) : context_(&context), sequence_(sequence) {}

// An answer at work.
struct Generator::Run final : ops::OutputMasks {
  const GenerateOptions& options;
  const TextSink& sink;
  engine::Answer answer;
  RunRequest request = {};  // of the next run of the context
  Generation result = {};
  bool is_best = false;                   // what is drawn is the one best token
  ops::AllowedTokens allowed_first = {};  // of the run at work
  int64_t n_predict = 0;

  Run(const Model& model, const GenerateOptions& of, const TextSink& to) : options(of), sink(to), answer(model, of) {}

  int64_t n_answer() const noexcept { return static_cast<int64_t>(answer.ids().size()); }
  bool is_ranked() const noexcept { return request.n_ranked > 0; }
  bool is_cancelled() const { return request.cancelled && request.cancelled(); }
  // While the context runs what the next draw is for.
  std::span<const ops::AllowedTokens> allowed() noexcept override {
    allowed_first = {0, answer.look_ahead()};
    return {&allowed_first, allowed_first.words.empty() ? 0u : 1u};
  }
  int64_t decode(Context& context, std::span<const TokenId> ids, int sequence) {
    const bool has_mask = answer.has_mask() && options.n_predict != 0;
    return context.state().decode(ids, sequence, request, has_mask ? this : nullptr);
  }
  void show(std::string_view text) {
    if (text.empty()) return;
    result.text += text;
    if (sink) sink(text);
  }
};

// Runs what the cache does not hold yet, all but the last token at least; returns how many of the
// prompt's tokens are in the cache now.
int64_t Generator::prefill(std::span<const TokenId> prompt, Run& run, Generation& result) {
  const auto size = static_cast<int64_t>(prompt.size());
  engine::check_prompt_size(size, context_->n_ctx());
  if (context_->n_past(sequence_) != static_cast<int64_t>(cached_.size()))
    cached_.clear();  // someone else used the sequence
  const auto common =
      std::mismatch(cached_.begin(), cached_.end(), prompt.begin(), prompt.end()).first - cached_.begin();
  const int64_t n_cached = std::min<int64_t>(common, size - 1);
  context_->truncate(n_cached, sequence_);
  cached_.resize(static_cast<size_t>(n_cached));
  result.n_prompt = size;
  result.n_prompt_cached = n_cached;
  const auto start = std::chrono::steady_clock::now();
  run.request.progress = progress_;
  result.prefill.tokens = run.decode(*context_, prompt.subspan(static_cast<size_t>(n_cached)), sequence_);
  run.request.progress = {};
  result.prefill.ms = ms_since(start);
  cached_.assign(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n_cached + result.prefill.tokens));
  return n_cached + result.prefill.tokens;
}

MakeRoom drop_older_half(int64_t n_keep, int64_t n_ctx) {
  if (n_keep < 0 || n_keep > n_ctx - 2) {
    throw Error(Errc::bad_request,
                fmt::format("{} tokens to keep of a context of {}: needs 0 to {}, so that something can be dropped",
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
Generator::Step Generator::run_drawn(Run& run) {
  Generation& result = run.result;
  const TokenId last = run.answer.ids().back();
  if (context_->n_past(sequence_) < context_->n_ctx()) {
    if (run.decode(*context_, {&last, 1}, sequence_) == 0) return Step::cancelled;
    cached_.push_back(last);
    result.decode.tokens += 1;
    return Step::ran;
  }
  if (!make_room_) return Step::full;
  std::vector<TokenId> all = cached_;
  all.push_back(last);
  const std::vector<TokenId> next = make_room_(all, run.answer.ids());
  if (next.empty()) return Step::full;
  Generation anew;
  const int64_t n_run = prefill(next, run, anew);
  result.decode.tokens += anew.prefill.tokens;
  result.n_dropped += static_cast<int64_t>(all.size()) - static_cast<int64_t>(next.size());
  return n_run < anew.n_prompt ? Step::cancelled : Step::ran;
}

// Runs the token drawn last. False: the answer ends here.
bool Generator::run_next(Run& run) {
  const bool is_full = context_->n_past(sequence_) == context_->n_ctx();
  // The token drawn after this one is run, too, unless it is the last. Where it ends the
  // answer, a run was for nothing, which whoever comes next waits for.
  run.request.follows_best = run.is_best && !is_full && run.n_answer() + 1 < run.n_predict;
  const Step step = run_drawn(run);
  run.result.context_full = step == Step::full;
  if (step == Step::cancelled) run.result.finish_reason = FinishReason::cancelled;
  return step == Step::ran;
}

// The next token, after the last run.
void Generator::draw(Run& run) {
  engine::Answer& answer = run.answer;
  const bool is_ranked = run.is_ranked() && (!answer.has_mask() || answer.has_looked_ahead());
  const std::span<const RankedLogit> best = is_ranked ? context_->ranked() : std::span<const RankedLogit>();
  if (!best.empty() && answer.decides(best)) {
    answer.draw(best);
  } else {
    answer.draw(context_->logits(), answer.wants_wide() ? context_->logits_double() : std::span<const double>());
  }
  if (answer.logprobs()) run.result.logprobs.push_back(*answer.logprobs());
  run.show(answer.shown());
  if (answer.ended()) run.result.finish_reason = FinishReason::stop;
}

Generation Generator::run(std::span<const TokenId> prompt, const GenerateOptions& options, const TextSink& sink,
                          const std::function<bool()>& cancelled) {
  Run run(context_->model(), options, sink);
  Generation& result = run.result;
  run.request.cancelled = cancelled;
  const int64_t n_ranked = run.answer.n_ranked();
  if (n_ranked <= context_->n_ranked_max()) run.request.n_ranked = n_ranked;
  run.is_best = run.request.n_ranked == 1 && !run.answer.has_mask();  // what a mask will leave nobody knows
  if (prefill(prompt, run, result) < result.n_prompt) {
    result.finish_reason = FinishReason::cancelled;
    return std::move(result);
  }
  run.answer.start(prompt);
  const auto start = std::chrono::steady_clock::now();
  run.n_predict = options.n_predict < 0 ? std::numeric_limits<int64_t>::max() : options.n_predict;
  while (run.n_answer() < run.n_predict && !run.answer.ended()) {
    if (run.is_cancelled()) {
      result.finish_reason = FinishReason::cancelled;
      break;
    }
    if (!run.answer.ids().empty() && !run_next(run)) break;  // the last token drawn is not in the cache yet
    draw(run);
  }
  run.show(run.answer.finish());
  if (const std::string* stop = run.answer.stop_string()) {
    result.finish_reason = FinishReason::stop;
    result.stop_string = *stop;
  }
  result.ids = run.answer.take_ids();
  result.decode.ms = ms_since(start);
  result.n_in_context = context_->n_past(sequence_);
  return std::move(result);
}

}  // namespace assay
