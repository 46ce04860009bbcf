// One answer as it grows: from the logits after the last token to the next token, its logprobs and the text that
// becomes certain with it. Whoever runs the model (Generator, Scheduler) hands in logits and reads what came of them.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/generate.h"
#include "engine/sampling/stop_strings.h"

namespace assay::engine {

class Answer {
 public:
  // Error(bad_request) for options out of range. The model must outlive it.
  Answer(const Model& model, const GenerateOptions& options);

  // How many of the best logits a draw needs, of those that the mask leaves; 0: all logits.
  int64_t n_ranked() const noexcept;
  bool has_mask() const noexcept { return static_cast<bool>(mask_); }
  // What the mask leaves for the next draw, which then does not ask it any more; nothing: all tokens, or an error,
  // which the draw throws. For who has the best of these logits found elsewhere.
  std::span<const uint64_t> look_ahead() noexcept;
  bool has_looked_ahead() const noexcept { return is_asked_; }
  bool wants_wide() const noexcept { return n_top_logprobs_ >= 0; }
  // What the answer follows; before the first draw.
  void start(std::span<const TokenId> prompt);

  // The next token, by the logits after the last one. Error(bad_file) as Sampler, Error(bad_request) where the mask
  // leaves no token. wide: the same as doubles where wants_wide(), which logprobs are made of.
  TokenId draw(std::span<const float> logits, std::span<const double> wide = {});
  // Whether the second draw below can do with the n_ranked() best; else it takes the first.
  bool decides(std::span<const RankedLogit> best) const noexcept { return sampler_.decides(best); }
  // n_ranked() of them or fewer, at least one; with a mask, after look_ahead(), of what it leaves.
  TokenId draw(std::span<const RankedLogit> best);
  bool ended() const noexcept { return ended_; }  // with an end-of-generation token, a stop id or a stop string
  // Text that became certain with the last draw: whole characters, no part of a stop string. finish(): what is left.
  std::string_view shown() const noexcept { return shown_; }
  std::string_view finish();

  const std::vector<TokenId>& ids() const noexcept { return ids_; }
  std::vector<TokenId> take_ids() noexcept { return std::move(ids_); }
  const std::optional<TokenLogprobs>& logprobs() const noexcept { return logprobs_; }  // of the last token
  const std::string* stop_string() const noexcept { return stop_.matched(); }          // which one ended it

 private:
  TokenId accept(TokenId id);
  std::span<const uint64_t> checked(std::span<const uint64_t> allowed) const;
  std::span<const uint64_t> take_allowed();
  std::span<const float> masked(std::span<const float> logits, std::span<const uint64_t> allowed);

  const Model* model_;
  bool stop_at_end_;
  std::vector<TokenId> stop_ids_;
  uint64_t request_;
  int64_t n_top_logprobs_;
  TokenMask mask_;
  std::vector<TokenId> visible_;
  Sampler sampler_;
  StopStrings stop_;
  std::optional<StreamDecoder> decoder_;  // none without a tokenizer: then there is no text
  int64_t n_prompt_ = 0;
  std::vector<TokenId> ids_;
  std::vector<float> row_;  // of a masked draw
  bool is_asked_ = false;   // the mask, for the next draw: what it said, or how it failed
  std::span<const uint64_t> allowed_;
  std::exception_ptr failure_;
  std::optional<TokenLogprobs> logprobs_;
  std::string part_, shown_;  // kept, so that a token takes no memory
  bool ended_ = false;
};

}  // namespace assay::engine
