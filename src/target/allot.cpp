// See allot.h.
#include "target/allot.h"

#include <algorithm>

namespace assay::target {
namespace {

struct Step {
  size_t tensor = 0, to = 0;  // candidate
  uint64_t bytes = 0;
  double saved_per_byte = 0;
};

// Indices of the candidates on the lower convex hull, by rising bytes and falling cost.
std::vector<size_t> hull_of(const std::vector<Candidate>& candidates) {
  std::vector<size_t> order(candidates.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Candidate &x = candidates[a], &y = candidates[b];
    return x.bytes != y.bytes ? x.bytes < y.bytes : x.cost != y.cost ? x.cost < y.cost : a < b;
  });
  const auto slope = [&](size_t a, size_t b) {  // cost saved for a byte
    return (candidates[a].cost - candidates[b].cost) / static_cast<double>(candidates[b].bytes - candidates[a].bytes);
  };
  std::vector<size_t> hull;
  for (const size_t i : order) {
    if (!hull.empty() && (candidates[i].bytes == candidates[hull.back()].bytes ||
                          !(candidates[i].cost < candidates[hull.back()].cost))) {
      continue;
    }
    while (hull.size() >= 2 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), i)) hull.pop_back();
    hull.push_back(i);
  }
  return hull;
}

uint64_t smallest_of(const std::vector<Candidate>& candidates) {
  const auto fewer = [](const Candidate& a, const Candidate& b) { return a.bytes < b.bytes; };
  return std::min_element(candidates.begin(), candidates.end(), fewer)->bytes;
}

}  // namespace

uint64_t least_bytes(std::span<const std::vector<Candidate>> tensors) {
  uint64_t bytes = 0;
  for (const std::vector<Candidate>& candidates : tensors) bytes += smallest_of(candidates);
  return bytes;
}

std::vector<size_t> allot(std::span<const std::vector<Candidate>> tensors, uint64_t bytes_max) {
  std::vector<size_t> chosen(tensors.size());
  std::vector<Step> steps;
  uint64_t bytes = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const std::vector<size_t> hull = hull_of(tensors[t]);
    chosen[t] = hull.front();
    bytes += tensors[t][hull.front()].bytes;
    for (size_t i = 1; i < hull.size(); ++i) {
      const Candidate &from = tensors[t][hull[i - 1]], &to = tensors[t][hull[i]];
      const uint64_t more = to.bytes - from.bytes;
      steps.push_back({t, hull[i], more, (from.cost - to.cost) / static_cast<double>(more)});
    }
  }
  // A tensor's steps save less and less for a byte, so that they stay in their order.
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.saved_per_byte > b.saved_per_byte; });
  std::vector<bool> is_full(tensors.size(), false);
  for (const Step& step : steps) {
    if (is_full[step.tensor]) continue;
    if (bytes + step.bytes > bytes_max) {
      is_full[step.tensor] = true;  // a later step would leave this one out
      continue;
    }
    bytes += step.bytes;
    chosen[step.tensor] = step.to;
  }
  return chosen;
}

}  // namespace assay::target
