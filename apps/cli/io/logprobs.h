// Log-probabilities as users ask for them and as they are shown.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "assay/logprobs.h"
#include "flags/flags.h"

namespace assay::cli {

struct LogprobsFlag {
  std::optional<int64_t> n;
  void add(Flags& flags);
  int64_t count() const;  // as GenerateOptions::n_top_logprobs; UsageError out of range
};

// OpenAI's chat shape. tokenizer: null where there is none.
boost::json::value logprobs_value(const Tokenizer* tokenizer, std::span<const TokenLogprobs> places);
// A line for each token.
std::string logprobs_table(const Tokenizer* tokenizer, std::span<const TokenLogprobs> places);

}  // namespace assay::cli
