// From a prompt's tokens to an answer: prefill, then one token at a time, with stop strings,
// limits, a stream of text and timings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
  int64_t n_predict = -1;              // tokens at most; < 0: until the context is full
  std::vector<std::string> stop;       // the answer ends before the first of these
  std::vector<TokenId> stop_ids = {};  // the answer ends with the first of these, whose text is not in it
  bool ignore_eos = false;             // forbids the end-of-generation tokens, as llama.cpp's flag does
  bool stop_at_end = true;  // false: an end-of-generation token is a token like any other (to compare streams)
  bool special = false;     // control tokens appear in the text
  std::vector<TokenId> visible = {};  // of these alone: control tokens that appear in it all the same
  int64_t n_top_logprobs = -1;        // >= 0: logprobs of every token, and of as many likeliest ones in its place
  uint64_t request = 0;               // keys the draws together with the seed
  TokenMask mask = {};
  SamplerOptions sampling;
};

struct PhaseTiming {
  int64_t tokens = 0;
  double ms = 0;
  double tokens_per_second() const noexcept { return ms > 0 ? static_cast<double>(tokens) * 1000 / ms : 0; }
};

struct Generation {
  std::string text;
  std::string reasoning;                // what the model thought before it, where that was parted (assay/reasoning.h)
  std::vector<TokenId> ids;             // all tokens drawn, the ending one among them
  std::vector<TokenLogprobs> logprobs;  // of each of the ids, where they were asked for
  FinishReason finish_reason = FinishReason::length;
  bool context_full = false;  // finish_reason is length because n_ctx positions are used up
  std::string stop_string;    // which one ended the answer; empty: none did
  int64_t n_prompt = 0;
  int64_t n_dropped = 0;                  // tokens that left the context for others (MakeRoom)
  int64_t n_prompt_cached = 0;            // of these were in the KV cache already
  PhaseTiming prefill;                    // tokens run before the first draw
  PhaseTiming decode;                     // tokens run after it
  int64_t n_drafted = 0, n_accepted = 0;  // tokens that were guessed ahead; of these the model's own draw gave the same
  int64_t n_in_context = 0;               // positions in use at the end
};

// Guesses of the next tokens, verified in one run: each position's own token is drawn as ever, and a guess counts while
// it equals it. So no answer changes, only how many runs it takes.
enum class DraftKind {
  none,
  ngram,  // what followed the last tokens where they stood before, in the prompt or the answer
  model,  // what a smaller model of the same vocabulary would say
};
std::string_view name(DraftKind kind) noexcept;     // "none", "ngram-simple", "draft-simple"
DraftKind parse_draft_kind(std::string_view text);  // Error(bad_request) that lists the names

struct DraftOptions {
  DraftKind kind = DraftKind::none;
  int64_t n_max = 16;                    // guesses a run and request, at most
  std::shared_ptr<const Model> model{};  // of kind model
};

// What a full context goes on with. in_context: the tokens in it and the one drawn last; answer: all of the answer so
// far. Returns the tokens that are to stand there instead, from position 0 on, n_ctx at most; none: the answer ends.
// What differs is read anew, at its new positions: the logits after it are those of a context that never held anything
// else.
using MakeRoom =
    std::function<std::vector<TokenId>(std::span<const TokenId> in_context, std::span<const TokenId> answer)>;

// Keeps the first n_keep tokens and drops the older half of the others. Error(bad_request) where n_keep leaves fewer
// than two of n_ctx positions.
MakeRoom drop_older_half(int64_t n_keep, int64_t n_ctx);

// Runs prompts in one sequence of a context and keeps what their beginnings have in common in the KV cache: the plain
// loop, for who has a context of his own. A Scheduler gives the same answers, several at a time, guesses ahead, and is
// what the program's commands use (assay/scheduler.h).
class Generator {  // one thread at a time
 public:
  explicit Generator(Context& context, int sequence = 0);  // the context must outlive it

  const Context& context() const noexcept { return *context_; }
  // From the next run on; none, as at first: an answer ends where the context is full.
  void set_make_room(MakeRoom make_room) { make_room_ = std::move(make_room); }
  // Told after every chunk of a prompt that is read, from the next run on.
  void set_progress(std::function<void(int64_t done, int64_t total)> progress) { progress_ = std::move(progress); }

  // Called with text as it becomes certain: whole characters, never a part of a stop string.
  using TextSink = std::function<void(std::string_view)>;
  // Error(bad_request) before any work where the prompt is empty or does not fit into the context.
  // `cancelled` is polled between tokens and chunks; once it says true, what there is so far is
  // returned.
  Generation run(std::span<const TokenId> prompt, const GenerateOptions& options, const TextSink& sink = {},
                 const std::function<bool()>& cancelled = {});

 private:
  enum class Step { ran, full, cancelled };
  struct Run;
  int64_t prefill(std::span<const TokenId> prompt, Run& run, Generation& result);
  bool run_next(Run& run);
  void draw(Run& run);
  Step run_drawn(Run& run);

  Context* context_;
  int sequence_;
  MakeRoom make_room_;
  std::function<void(int64_t, int64_t)> progress_;
  std::vector<TokenId> cached_;  // the tokens whose positions are in the KV cache
};

}  // namespace assay
