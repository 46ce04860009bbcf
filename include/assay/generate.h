// From a prompt's tokens to an answer: prefill, then one token at a time, with stop strings,
// limits, a stream of text and timings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/context.h"
#include "assay/logprobs.h"
#include "assay/sampler.h"
#include "assay/tokenizer.h"

namespace assay {

enum class FinishReason {
  stop,    // an end-of-generation token or a stop string
  length,  // n_predict tokens, or the context is full
  cancelled,
  late,  // a scheduler's request whose time was over
};
std::string_view name(FinishReason reason) noexcept;

// Which tokens may come after this much of the answer: bit id % 64 of word id / 64, set where the
// token is allowed; no words: all are. Asked once before each draw, in order; the words are read
// before it is asked again. What it allows keeps its logit.
using TokenMask = std::function<std::span<const uint64_t>(std::span<const TokenId> answer)>;

struct GenerateOptions {
  int64_t n_predict = -1;         // tokens at most; < 0: until the context is full
  std::vector<std::string> stop;  // the answer ends before the first of these
  bool ignore_eos = false;        // forbids the end-of-generation tokens, as llama.cpp's flag does
  bool stop_at_end =
      true;  // false: an end-of-generation token is a token like any other (to compare streams)
  bool special = false;  // control tokens appear in the text
  int64_t n_top_logprobs = -1;  // >= 0: logprobs of every token, and of as many likeliest ones in its place
  uint64_t request = 0;  // keys the draws together with the seed
  TokenMask mask = {};
  SamplerOptions sampling;
};

struct PhaseTiming {
  int64_t tokens = 0;
  double ms = 0;
  double tokens_per_second() const noexcept {
    return ms > 0 ? static_cast<double>(tokens) * 1000 / ms : 0;
  }
};

struct Generation {
  std::string text;
  std::vector<TokenId> ids;  // all tokens drawn, the ending one among them
  std::vector<TokenLogprobs> logprobs;  // of each of the ids, where they were asked for
  FinishReason finish_reason = FinishReason::length;
  bool context_full = false;  // finish_reason is length because n_ctx positions are used up
  std::string stop_string;    // which one ended the answer; empty: none did
  int64_t n_prompt = 0;
  int64_t n_prompt_cached = 0;  // of these were in the KV cache already
  PhaseTiming prefill;          // tokens run before the first draw
  PhaseTiming decode;           // tokens run after it
};

// Runs prompts in one sequence of a context and keeps what their beginnings have in common in the
// KV cache.
class Generator {
 public:
  explicit Generator(Context& context, int sequence = 0);  // the context must outlive it

  // Called with text as it becomes certain: whole characters, never a part of a stop string.
  using TextSink = std::function<void(std::string_view)>;
  // Error(bad_request) before any work where the prompt is empty or does not fit into the context.
  // `cancelled` is polled between tokens and chunks; once it says true, what there is so far is
  // returned.
  Generation run(std::span<const TokenId> prompt, const GenerateOptions& options,
                 const TextSink& sink = {}, const std::function<bool()>& cancelled = {});

 private:
  int64_t prefill(std::span<const TokenId> prompt, Generation& result);

  Context* context_;
  int sequence_;
  std::vector<TokenId> cached_;  // the tokens whose positions are in the KV cache
};

}  // namespace assay
