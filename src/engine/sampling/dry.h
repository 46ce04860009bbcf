// DRY ("don't repeat yourself"): penalises the token that would go on a repetition of what stands
// in the history, the more the longer it already is. Sequence breakers, such as a line break, end a
// repetition. Source: the description by its author in text-generation-webui, pull request 5677.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/sampler.h"

namespace assay::engine {

class Dry {
 public:
  Dry(const SamplerOptions& options, Sampler::TokenText token_text);

  bool active() const noexcept { return multiplier_ != 0 && last_n_ != 0; }
  void clear();
  void accept(TokenId token);
  // history: all tokens accepted since the last clear.
  void apply(std::span<const TokenId> history, std::span<float> logits);

 private:
  double multiplier_, base_;
  int64_t allowed_length_, last_n_;
  std::vector<std::string> breakers_;
  size_t breaker_bytes_max_ = 0;
  Sampler::TokenText token_text_;
  std::string tail_;              // the last bytes of the history, where a breaker may have begun
  int64_t since_breaker_ = 0;     // tokens after the one in which the last breaker ended
  std::vector<int64_t> repeats_;  // scratch
  std::vector<std::pair<TokenId, int64_t>> found_;
};

}  // namespace assay::engine
