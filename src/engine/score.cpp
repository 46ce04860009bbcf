// Scores of a text.
#include "assay/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "assay/error.h"
#include "num/math64.h"

namespace assay {

double log_sum_exp(std::span<const double> x) {
  double best = -std::numeric_limits<double>::infinity();
  for (double v : x) best = std::max(best, v);
  double lane[8] = {};  // element i goes to lane i % 8, which lets the compiler use vectors
  for (size_t i = 0; i < x.size(); ++i) lane[i % 8] += num::exp64(x[i] - best);
  const double sum =
      ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  return best + num::log64(sum);
}

Score score(Context& context, std::span<const TokenId> ids, int64_t n_top) {
  const auto size = static_cast<int64_t>(ids.size());
  if (n_top < 0) throw Error(Errc::bad_request, fmt::format("{} top logits were asked for", n_top));
  Score result;
  double nll_sum = 0;
  context.clear();
  context.decode_all(ids, [&](int64_t position, std::span<const double> logits) {
    const double total = log_sum_exp(logits);
    if (position + 1 < size) {
      nll_sum += total - logits[static_cast<size_t>(ids[static_cast<size_t>(position + 1)])];
      return;
    }
    result.logsumexp = total;
    std::vector<std::pair<TokenId, double>> all(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) all[i] = {static_cast<TokenId>(i), logits[i]};
    const auto n = std::min<std::ptrdiff_t>(n_top, static_cast<std::ptrdiff_t>(all.size()));
    std::partial_sort(all.begin(), all.begin() + n, all.end(), [](const auto& a, const auto& b) {
      return a.second > b.second || (a.second == b.second && a.first < b.first);
    });
    result.top.assign(all.begin(), all.begin() + n);
  });
  result.mean_nll = size > 1 ? nll_sum / static_cast<double>(size - 1) : 0;
  result.logits_digest = context.logits_digest();
  result.kv_digest = context.kv_digest();
  return result;
}

}  // namespace assay
