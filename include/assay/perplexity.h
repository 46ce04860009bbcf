// How well a model predicts a text, and how far two ways of computing it are apart.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "assay/context.h"

namespace assay {

struct PerplexityOptions {
  int64_t n_chunk = 512;     // tokens per chunk (-c), each scored on its second half, as llama-perplexity does
  int64_t n_chunks_max = 0;  // 0: all
  bool keep_tokens = false;  // fills PerplexityResult::tokens
  std::function<bool()> cancelled;
  std::function<void(int64_t done, int64_t total)> progress;  // chunks
};

struct PerplexityToken {
  int64_t index = 0;       // in the text
  TokenId id = 0;
  double nll = 0;
  double base_nll = 0;     // of the other context, where there is one
  double kl_divergence = 0;
  bool same_top = true;
};

// Of a sample: its mean, the mean's standard error, and percentiles.
struct Distribution {
  double mean = 0, standard_error = 0, median = 0, p90 = 0, p99 = 0, p999 = 0, largest = 0;
};

struct PerplexityResult {
  int64_t n_tokens = 0, n_scored = 0, n_chunks = 0;
  double perplexity = 0, perplexity_error = 0;  // exp(mean nll), and its standard error
  double mean_nll = 0, mean_nll_error = 0;
  // Only where a base was given.
  bool compared = false;
  double base_perplexity = 0, base_perplexity_error = 0;
  Distribution kl_divergence;       // of the context's distribution from the base's: sum p_base log(p_base / p)
  Distribution probability_change;  // p - p_base of the text's own token
  double same_top = 0, same_top_error = 0;  // share of positions whose most likely token is the same
  std::vector<PerplexityToken> tokens;
};

// base: null, or the context whose distributions are the reference; it must have the same vocabulary. Error(bad_request) for a text shorter
// than two chunks' needs, as it says.
PerplexityResult perplexity(Context& context, Context* base, std::span<const TokenId> ids, const PerplexityOptions& options = {});

}  // namespace assay
