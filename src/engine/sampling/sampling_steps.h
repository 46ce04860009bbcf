// The steps of the sampling chain, each on its own. A candidate list that a step has "ranked"
// stands in descending order of logits, equal logits in ascending order of ids; no step drops the
// last candidate.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "assay/sampler.h"

namespace assay::engine {

using Candidates = std::vector<Candidate>;

inline bool ranks_before(const Candidate& a, const Candidate& b) noexcept {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The largest logit; throws Error(bad_file) where one is NaN or +infinity, or all are -infinity.
float checked_max(std::span<const float> logits);
TokenId first_equal(std::span<const float> logits, float value) noexcept;

// window: the tokens looked back at, in any order; scratch is overwritten.
// Each token in it: l > 0 ? l / repeat : l * repeat; then l - count * frequency - presence.
void apply_penalties(std::span<float> logits, std::span<const TokenId> window, float repeat, float frequency,
                     float presence, std::vector<TokenId>& scratch);

// Keeps the logits >= max - n * deviation; the others become -infinity. Mean and deviation (of the
// population) over finite logits, in double.
void top_n_sigma(std::span<float> logits, double n);

// The k best of all finite logits, ranked; k <= 0: all of them, in order of ids (false: not
// ranked).
bool select_top_k(std::span<const float> logits, int64_t k, Candidates& out);

// All finite logits and then top_p or min_p, without a list of all of them. best: checked_max.
void select_top_p(std::span<const float> logits, float best, double p, Candidates& out);
void select_min_p(std::span<const float> logits, float best, double p, Candidates& out);

void rank(Candidates& c);
void order_by_id(Candidates& c);
// Fills the probabilities: exp(logit - max) / sum, summed in list order.
void softmax(Candidates& c);
double entropy(const Candidates& c) noexcept;  // of the probabilities

// Keeps, in ascending order of | -log p - entropy |, the first candidates whose sum exceeds p.
// Leaves the list ranked.
void typical(Candidates& c, double p);
// Keeps, in the order of ranks, the first candidates whose sum reaches p. Leaves the list ranked.
void top_p(Candidates& c, double p, bool ranked);
void min_p(Candidates& c, double p);  // keeps those with logit >= max + log p, in list order
// The list must be ranked: where draw <= probability, drops all but the last of the candidates
// whose probability is at least the threshold.
void xtc(Candidates& c, double probability, double threshold, double draw);
// The same of a list in any order, which it keeps; false, and nothing is dropped, where only the order of the sum of
// the ranked list decides.
bool xtc_unranked(Candidates& c, double probability, double threshold, double draw);
// Divides the logits; range > 0: by a temperature in [t - range, t + range] that follows (entropy /
// log n) ^ exponent. 0: only the best stays.
void temperature(Candidates& c, double t, double range, double exponent);
// The candidate in whose share of the probabilities (in list order) `draw` in [0, 1) falls.
TokenId pick(const Candidates& c, double draw) noexcept;

}  // namespace assay::engine
