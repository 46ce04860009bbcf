// The steps of the sampling chain. All decisions are made from exp64, log64 and sums in list order
// (num/math64.h), never from libm.
#include "engine/sampling/sampling_steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "assay/error.h"
#include "num/math64.h"

namespace assay::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

Candidates::iterator at(Candidates& c, size_t i) { return c.begin() + static_cast<std::ptrdiff_t>(i); }

constexpr size_t kBlock = 64;  // logits looked at together

// More than two orders of a sum of 2^22 positive doubles can differ by, relative to it.
constexpr double kSumError = 4e-9;

// Calls work(index of the block's first, block) for blocks of a list, in its order.
template <class Work>
void for_blocks(std::span<const float> logits, const Work& work) {
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    work(begin, logits.subspan(begin, std::min(kBlock, logits.size() - begin)));
  }
}

// No NaN among them.
float max_of(std::span<const float> block) noexcept {
  constexpr size_t kLanes = 16;  // independent maxima, so that the compiler can use vectors
  float best[kLanes];
  std::fill(best, best + kLanes, kMinusInfinity);
  size_t i = 0;
  for (; i + kLanes <= block.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      best[lane] = block[i + lane] > best[lane] ? block[i + lane] : best[lane];
  }
  for (; i < block.size(); ++i) best[0] = block[i] > best[0] ? block[i] : best[0];
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane)
      best[lane] = best[lane + half] > best[lane] ? best[lane + half] : best[lane];
  }
  return best[0];
}

double best_logit(const Candidates& c) {
  double best = c.front().logit;
  for (const Candidate& x : c) best = std::max(best, static_cast<double>(x.logit));
  return best;
}

// Puts exp(logit - best) of each candidate into its probability; their sum in list order.
double fill_weights(Candidates& c, double best) {
  std::array<float, kBlock> logits;
  std::array<double, kBlock> weights;
  double sum = 0;
  for (size_t begin = 0; begin < c.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, c.size() - begin);
    for (size_t i = 0; i < n; ++i) logits[i] = c[begin + i].logit;
    num::exp64_less(std::span(logits).first(n), best, std::span(weights).first(n));
    for (size_t i = 0; i < n; ++i) sum += c[begin + i].probability = weights[i];
  }
  return sum;
}

// The share of the whole that each candidate has, and log of the sum: -log p = log_sum - logit.
double fill_probabilities(Candidates& c) {
  const double best = best_logit(c);
  const double sum = fill_weights(c, best);
  for (Candidate& x : c) x.probability /= sum;
  return num::log64(sum) + best;
}

// The first n_sorted of the list are in order already; sorts more of it, most of a vocabulary never. Returns how many
// are.
template <class Before>
size_t sort_further(Candidates& c, size_t n_sorted, const Before& before) {
  const size_t n = std::min(c.size(), std::max<size_t>(256, 4 * n_sorted));
  if (n < c.size()) std::nth_element(at(c, n_sorted), at(c, n), c.end(), before);
  std::sort(at(c, n_sorted), at(c, n), before);
  return n;
}

}  // namespace

float checked_max(std::span<const float> logits) {
  constexpr size_t kLanes = 16;  // independent maxima, so that the compiler can use vectors
  float best[kLanes];
  std::fill(best, best + kLanes, kMinusInfinity);
  int32_t bad[kLanes] = {};
  const auto see = [&](size_t lane, float x) {
    best[lane] = x > best[lane] ? x : best[lane];
    bad[lane] |= !(x < std::numeric_limits<float>::infinity());
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) see(lane, logits[i + lane]);
  }
  for (; i < logits.size(); ++i) see(0, logits[i]);
  if (std::any_of(bad, bad + kLanes, [](int32_t b) { return b != 0; })) {
    throw Error(Errc::bad_file, "the model's logits are no finite numbers: its weights may be damaged");
  }
  const float max = *std::max_element(best, best + kLanes);
  if (max == kMinusInfinity)
    throw Error(Errc::bad_request, "no token is left to choose from: the logit bias forbids all of them");
  return max;
}

TokenId first_equal(std::span<const float> logits, float value) noexcept {
  size_t begin = 0;  // of the first block that has it: blocks are asked whole, so that the compiler can use vectors
  for (; begin + kBlock <= logits.size(); begin += kBlock) {
    int32_t is_there = 0;
    for (size_t i = 0; i < kBlock; ++i) is_there |= static_cast<int32_t>(logits[begin + i] == value);
    if (is_there != 0) break;
  }
  return static_cast<TokenId>(std::find(logits.begin() + static_cast<std::ptrdiff_t>(begin), logits.end(), value) -
                              logits.begin());
}

void apply_penalties(std::span<float> logits, std::span<const TokenId> window, float repeat, float frequency,
                     float presence, std::vector<TokenId>& scratch) {
  scratch.assign(window.begin(), window.end());
  std::sort(scratch.begin(), scratch.end());
  for (size_t i = 0; i < scratch.size();) {
    size_t end = i;
    while (end < scratch.size() && scratch[end] == scratch[i]) ++end;
    float& logit = logits[static_cast<size_t>(scratch[i])];
    logit = logit > 0 ? logit / repeat : logit * repeat;
    logit -= static_cast<float>(end - i) * frequency + presence;
    i = end;
  }
}

void top_n_sigma(std::span<float> logits, double n) {
  double sum = 0, count = 0, best = -std::numeric_limits<double>::infinity();
  for (float x : logits) {
    if (x == kMinusInfinity) continue;
    sum += x;
    count += 1;
    best = std::max(best, static_cast<double>(x));
  }
  const double mean = sum / count;
  double squares = 0;
  for (float x : logits) {
    if (x != kMinusInfinity) squares += (x - mean) * (x - mean);
  }
  const double least = best - n * std::sqrt(squares / count);
  for (float& x : logits) {
    if (x < least) x = kMinusInfinity;
  }
}

bool select_top_k(std::span<const float> logits, int64_t k, Candidates& out) {
  out.clear();
  const auto size = static_cast<int64_t>(logits.size());
  if (k <= 0 || k >= size) {
    for (int64_t i = 0; i < size; ++i) {
      if (logits[static_cast<size_t>(i)] != kMinusInfinity)
        out.push_back({static_cast<TokenId>(i), logits[static_cast<size_t>(i)], 0});
    }
    return false;
  }
  // A heap whose top is the worst of the k best so far; most blocks fail the one comparison with
  // it. Ids ascend, so that an equal logit never displaces an earlier one.
  float worst = kMinusInfinity;
  for_blocks(logits, [&](size_t begin, std::span<const float> block) {
    if (!(max_of(block) > worst)) return;
    for (size_t i = 0; i < block.size(); ++i) {
      if (!(block[i] > worst)) continue;
      if (static_cast<int64_t>(out.size()) == k) {
        std::pop_heap(out.begin(), out.end(), ranks_before);
        out.pop_back();
      }
      out.push_back({static_cast<TokenId>(begin + i), block[i], 0});
      std::push_heap(out.begin(), out.end(), ranks_before);
      if (static_cast<int64_t>(out.size()) == k) worst = out.front().logit;
    }
  });
  std::sort_heap(out.begin(), out.end(), ranks_before);
  return true;
}

void rank(Candidates& c) { std::sort(c.begin(), c.end(), ranks_before); }

void order_by_id(Candidates& c) {
  std::sort(c.begin(), c.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

void softmax(Candidates& c) { fill_probabilities(c); }

double entropy(const Candidates& c) noexcept {
  double sum = 0;
  for (const Candidate& x : c) {
    if (x.probability > 0) sum -= x.probability * num::log64(x.probability);
  }
  return sum;
}

void typical(Candidates& c, double p) {
  const double log_sum = fill_probabilities(c);
  const double h = entropy(c);
  const auto distance = [&](const Candidate& x) { return std::fabs(log_sum - static_cast<double>(x.logit) - h); };
  const auto before = [&](const Candidate& a, const Candidate& b) {
    const double da = distance(a), db = distance(b);
    return da < db || (da == db && ranks_before(a, b));
  };
  double sum = 0;
  size_t n_kept = 0, n_sorted = 0;
  while (n_kept < c.size()) {
    if (n_kept == n_sorted) n_sorted = sort_further(c, n_sorted, before);
    sum += c[n_kept++].probability;
    if (sum > p) break;
  }
  c.resize(n_kept);
  rank(c);
}

void top_p(Candidates& c, double p, bool ranked) {
  fill_probabilities(c);
  double sum = 0;
  size_t n_kept = 0, n_ranked = ranked ? c.size() : 0;
  while (n_kept < c.size()) {
    if (n_kept == n_ranked) n_ranked = sort_further(c, n_ranked, ranks_before);
    sum += c[n_kept++].probability;
    if (sum >= p) break;
  }
  c.resize(n_kept);
}

void select_top_p(std::span<const float> logits, float best, double p, Candidates& out) {
  const auto weight = [best](float logit) {
    return num::exp64(static_cast<double>(logit) - static_cast<double>(best));
  };
  std::array<double, kBlock> weights;
  double whole = 0;
  for_blocks(logits, [&](size_t, std::span<const float> block) {
    num::exp64_less(block, best, std::span(weights).first(block.size()));
    for (size_t i = 0; i < block.size(); ++i) whole += weights[i];  // a logit of -infinity adds +0
  });
  for (int64_t k = 256;; k *= 8) {
    if (!select_top_k(logits, k, out)) rank(out);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].probability = weight(out[i].logit) / whole;
      sum += out[i].probability;
      if (sum >= p) return out.resize(i + 1);
    }
    if (k >= static_cast<int64_t>(logits.size())) return;
  }
}

void select_min_p(std::span<const float> logits, float best, double p, Candidates& out) {
  const double least = static_cast<double>(best) + num::log64(p);
  out.clear();
  for_blocks(logits, [&](size_t begin, std::span<const float> block) {
    if (static_cast<double>(max_of(block)) < least) return;
    for (size_t i = 0; i < block.size(); ++i) {
      if (static_cast<double>(block[i]) < least || block[i] == kMinusInfinity) continue;
      out.push_back({static_cast<TokenId>(begin + i), block[i], 0});
    }
  });
}

void min_p(Candidates& c, double p) {
  const double least = best_logit(c) + num::log64(p);
  const Candidate best = *std::min_element(c.begin(), c.end(), ranks_before);
  std::erase_if(c, [&](const Candidate& x) { return static_cast<double>(x.logit) < least && x.id != best.id; });
}

void xtc(Candidates& c, double probability, double threshold, double draw) {
  if (c.size() < 2 || draw > probability) return;
  fill_probabilities(c);
  size_t n_above = 0;
  while (n_above < c.size() && c[n_above].probability >= threshold) ++n_above;
  if (n_above > 1) c.erase(c.begin(), at(c, n_above - 1));
}

bool xtc_unranked(Candidates& c, double probability, double threshold, double draw) {
  if (c.size() < 2 || draw > probability) return true;
  fill_probabilities(c);
  const Candidate* last = nullptr;  // of those above the threshold, by rank
  size_t n_above = 0;
  for (const Candidate& x : c) {
    if (std::fabs(x.probability - threshold) <= kSumError * threshold) return false;
    if (x.probability < threshold) continue;
    if (last == nullptr || ranks_before(*last, x)) last = &x;
    ++n_above;
  }
  if (n_above < 2) return true;
  const TokenId kept = last->id;
  std::erase_if(c, [&](const Candidate& x) { return x.probability >= threshold && x.id != kept; });
  return true;
}

void temperature(Candidates& c, double t, double range, double exponent) {
  if (range > 0 && c.size() > 1) {
    fill_probabilities(c);
    const double normalized = entropy(c) / num::log64(static_cast<double>(c.size()));
    const double least = std::max(0.0, t - range);
    const double power = normalized > 0 ? num::exp64(exponent * num::log64(normalized)) : 0.0;
    t = least + (t + range - least) * power;
  }
  if (t <= 0) {
    c = {*std::min_element(c.begin(), c.end(), ranks_before)};
    return;
  }
  // Relative to the best, which changes no probability, so that a small temperature overflows to
  // probability 0 and not to NaN.
  const double best = best_logit(c);
  for (Candidate& x : c) x.logit = static_cast<float>((static_cast<double>(x.logit) - best) / t);
}

TokenId pick(const Candidates& c, double draw) noexcept {
  double sum = 0;
  for (const Candidate& x : c) sum += x.probability;
  const double target = draw * sum;
  double reached = 0;
  for (const Candidate& x : c) {
    reached += x.probability;
    if (reached > target) return x.id;
  }
  return c.front().id;  // only where rounding put the target at the very end
}

}  // namespace assay::engine
