// How likely the model itself held a token, and which others it held likely: log-probabilities of the exact logits,
// before any step of sampling changes them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/tokenizer.h"

namespace assay {

// How many of the likeliest tokens chat APIs give for each place.
inline constexpr int64_t kTopLogprobsMax = 20;

// One place of a text.
struct TokenLogprobs {
  TokenId id = 0;
  double logprob =
      0;  // natural; minus infinity where the logit is; NaN: there is none, as for the first token of a text
  std::vector<std::pair<TokenId, double>> top;  // the likeliest ones there, descending, the lower id first among equals
};

// Of `id`, by the logits of all tokens after the one before it, and of the n_top likeliest in its place. In double and
// in a fixed order: the same logits give the same bits. Error(bad_request) for an id or a count out of range.
TokenLogprobs token_logprobs(std::span<const double> logits, TokenId id, int64_t n_top);

// A token as people can read it: its text, control tokens as the file spells them, and a byte that is no whole
// character as <0xNN>.
std::string token_label(const Tokenizer& tokenizer, TokenId id);

// OpenAI's chat shape, with ids beside the texts: {"content": [{"token", "id", "bytes", "logprob", "top_logprobs":
// [...]}, ...]}. What is no finite number is null. tokenizer: null where there is none; then no "token" and no "bytes".
std::string logprobs_json(const Tokenizer* tokenizer, std::span<const TokenLogprobs> places);

}  // namespace assay
