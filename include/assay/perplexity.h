// How well a model predicts a text, and how far two ways of computing it are apart. Counts as llama-perplexity does
// (docs/perplexity.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "assay/context.h"

namespace assay {

struct PerplexityOptions {
  int64_t n_chunk = 512;     // tokens per chunk (-c): each is run from an empty context and scored on its second half
  int64_t n_chunks_max = 0;  // 0: all
  // What takes the place of every chunk's first token; empty: BOS where the model's tokenizer adds one, else the text's
  // own token.
  std::optional<TokenId> first_token = {};
  bool keep_tokens = false;  // fills PerplexityResult::tokens
  // Polled between the pieces of a chunk and the contexts' own chunks. The result is that of the whole chunks done.
  std::function<bool()> cancelled = {};
  // Tokens run so far and in all, and the perplexity of the chunks done (NaN before the first is).
  std::function<void(int64_t done, int64_t total, double perplexity)> progress = {};
};

struct PerplexityToken {
  int64_t index = 0;  // in the text
  TokenId id = 0;
  double nll = 0;  // -log of its probability
  // Only where a base was given.
  double base_nll = 0;
  double kl_divergence = 0;
  bool same_top = true;
};

// Of a sample: its mean with standard error, its root mean square with standard error, and its percentiles,
// interpolated between neighbours. A NaN in the sample makes all of them NaN; of an empty sample all are 0.
struct Distribution {
  double mean = 0, standard_error = 0;
  double rms = 0, rms_error = 0;
  double smallest = 0, p0_1 = 0, p1 = 0, p10 = 0, median = 0, p90 = 0, p99 = 0, p99_9 = 0, largest = 0;
};

struct PerplexityResult {
  int64_t n_tokens = 0;  // of the text
  int64_t n_scored = 0;
  int64_t n_chunks = 0, n_chunks_asked = 0;     // done, and to be done: fewer are done where it was cancelled
  int64_t n_not_finite = 0;                     // scored tokens with a figure that is no finite number
  double perplexity = 0, perplexity_error = 0;  // exp(mean nll), and its standard error
  double mean_nll = 0, mean_nll_error = 0;
  // Only where a base was given.
  bool compared = false;
  double base_perplexity = 0, base_perplexity_error = 0;
  double base_mean_nll = 0, base_mean_nll_error = 0;
  double log_ratio = 0, log_ratio_error = 0;  // of perplexity / base_perplexity; the error of the paired difference
  Distribution kl_divergence;                 // from the base's distribution: sum p_base log(p_base / p)
  Distribution probability_change;            // p - p_base of the text's own token
  double same_top = 0, same_top_error = 0;    // share of positions whose most likely token is the same
  std::vector<PerplexityToken> tokens;
  bool cancelled() const noexcept { return n_chunks < n_chunks_asked; }
};

// base: null, or the context whose distributions are the reference. Both run in lockstep and are cleared first; of the
// logits a few rows are held at a time. Error(bad_request) where the vocabularies differ, a chunk does not fit into a
// context, or the text is shorter than two chunks.
PerplexityResult perplexity(Context& context, Context* base, std::span<const TokenId> ids,
                            const PerplexityOptions& options = {});

}  // namespace assay
