// See best_logits.h.
#include "engine/sampling/best_logits.h"

#include <algorithm>
#include <cmath>

namespace assay::engine {

std::vector<std::pair<TokenId, double>> best_logits(std::span<const double> logits, int64_t n) {
  const auto better = [](const auto& a, const auto& b) {
    return a.second > b.second || (a.second == b.second && a.first < b.first);
  };
  std::vector<std::pair<TokenId, double>> heap;  // the worst of the best so far stands in front
  const size_t size = static_cast<size_t>(std::clamp<int64_t>(n, 0, static_cast<int64_t>(logits.size())));
  heap.reserve(size);
  for (size_t i = 0; i < logits.size() && size > 0; ++i) {
    if (std::isnan(logits[i])) continue;
    const std::pair<TokenId, double> candidate(static_cast<TokenId>(i), logits[i]);
    if (heap.size() == size) {
      if (!better(candidate, heap.front())) continue;
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.back() = candidate;
    } else {
      heap.push_back(candidate);
    }
    std::push_heap(heap.begin(), heap.end(), better);
  }
  std::sort_heap(heap.begin(), heap.end(), better);
  return heap;
}

}  // namespace assay::engine
