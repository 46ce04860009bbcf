// From logits to the next token: the chain of llama.cpp's default order, then a draw.
//   logit bias, penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature, draw.
// The draw comes from a counter-based generator keyed by (seed, request, position): it depends on
// nothing else. Ties go to the lowest token id. Sums are made in double in a fixed order, so that
// the same logits give the same token on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/context.h"
#include "assay/model.h"
#include "assay/tokenizer.h"

namespace assay {

struct LogitBias {
  TokenId token = 0;
  float bias = 0;  // added to the token's logit; minus infinity forbids it
};

// Every step has a value at which it does nothing; it is the default of those that llama.cpp leaves
// off.
struct SamplerOptions {
  uint64_t seed = 0;
  double temperature = 0.8;  // 0: the best token that the steps before it leave
  double dynamic_range = 0;  // > 0: the temperature moves in [temperature -+ range] with the entropy
  double dynamic_exponent = 1;
  int64_t top_k = 40;           // <= 0: off
  double top_p = 0.95;          // >= 1: off
  double min_p = 0.05;          // <= 0: off
  double typical_p = 1;         // >= 1: off
  double top_n_sigma = -1;      // <= 0: off
  double xtc_probability = 0;   // <= 0: off
  double xtc_threshold = 0.1;   // > 0.5: off
  int64_t penalty_last_n = 64;  // tokens looked back at; 0: none, -1: all
  double repeat_penalty = 1;    // 1: off
  double frequency_penalty = 0;
  double presence_penalty = 0;
  double dry_multiplier = 0;  // 0: off
  double dry_base = 1.75;
  int64_t dry_allowed_length = 2;
  int64_t dry_penalty_last_n = 64;  // as penalty_last_n
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  std::vector<LogitBias> logit_bias;
};

// The defaults with what the model's file says in general.sampling.* put over them.
// Error(unsupported) where the file asks for another order or for a step that we do not have.
SamplerOptions default_sampling(const Model& model);

// Throws Error(bad_request) naming the option, its value and its range.
void check(const SamplerOptions& options);

struct Candidate {
  TokenId id = 0;
  float logit = 0;
  double probability = 0;
};

class Sampler {  // one thread at a time
 public:
  // The bytes a token stands for, for DRY's sequence breakers; without it there are none.
  using TokenText = std::function<std::string(TokenId)>;
  // Error(bad_request) for options out of range or a bias for no token.
  Sampler(const SamplerOptions& options, int64_t vocab_size, TokenText token_text = {});
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // Begins a request: the history that the penalties look at becomes the prompt.
  void start(std::span<const TokenId> prompt, uint64_t request = 0);
  // Appends a token to the history.
  void accept(TokenId token);
  // The token for `position` (the number of tokens before it). Does not accept it. Error(bad_file)
  // where the logits hold a NaN or an infinity, or where nothing is left to choose from.
  TokenId sample(std::span<const float> logits, int64_t position);
  // How many of the best logits decide: of these alone the second sample below draws the same token
  // as the first does of all, if decides(). 0: all are needed, because a step changes them or looks at every one.
  int64_t n_ranked() const noexcept;
  // Whether they do: not where a forbidden token (a bias of minus infinity) is among them. Then all logits are needed.
  bool decides(std::span<const RankedLogit> ranked) const noexcept;
  // ranked: the n_ranked() best, or fewer where the others are minus infinity (Context::ranked).
  TokenId sample(std::span<const RankedLogit> ranked, int64_t position);
  // What the last call of sample chose from, with the probabilities of the draw, in
  // ascending order of ids.
  std::span<const Candidate> candidates() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The token of the largest logit, the lowest id among equals. Error(bad_file) for a NaN or an
// infinity.
TokenId argmax(std::span<const float> logits);

}  // namespace assay
