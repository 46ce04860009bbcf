// What a model says about a text: the logits after its last token, how likely the text was, and
// digests of everything computed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/context.h"
#include "assay/logprobs.h"

namespace assay {

struct Score {
  std::vector<std::pair<TokenId, double>>
      top;                            // the largest logits after the last token, descending; ties by the lowest id
  double logsumexp = 0;               // of all logits after the last token
  double mean_nll = 0;                // mean of -log p of every token after the first; 0 for a single token
  std::vector<TokenLogprobs> places;  // of Places::all: one for each token of the text
  std::string logits_digest;          // over the bits of all positions, as Context says
  std::string kv_digest;
};

// last: only what comes after the text; all: also how likely each of its own tokens was, with the n_top likeliest
// there.
enum class Places { last, all };

// Clears the context and runs the tokens. Error(bad_request) where they do not fit.
Score score(Context& context, std::span<const TokenId> ids, int64_t n_top, Places places = Places::last,
            const std::function<void(int64_t done, int64_t total)>& progress = {});

// log(sum(exp(x))), in double, in a fixed order.
double log_sum_exp(std::span<const double> x);

}  // namespace assay
