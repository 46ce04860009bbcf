// Scores of a text.
#include "assay/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "assay/error.h"
#include "engine/sampling/best_logits.h"
#include "num/math64.h"

namespace assay {

double log_sum_exp(std::span<const double> x) {
  double best = -std::numeric_limits<double>::infinity();
  for (double v : x) best = std::max(best, v);
  double lane[8] = {};  // element i goes to lane i % 8, which lets the compiler use vectors
  for (size_t i = 0; i < x.size(); ++i) lane[i % 8] += num::exp64(x[i] - best);
  const double sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  return best + num::log64(sum);
}

Score score(Context& context, std::span<const TokenId> ids, int64_t n_top, Places places,
            const std::function<void(int64_t, int64_t)>& progress) {
  const auto size = static_cast<int64_t>(ids.size());
  if (n_top < 0) throw Error(Errc::bad_request, fmt::format("{} top logits were asked for", n_top));
  Score result;
  if (places == Places::all && !ids.empty()) {
    result.places.push_back({ids[0], std::numeric_limits<double>::quiet_NaN(), {}});
  }
  double nll_sum = 0;
  context.clear();
  const auto add = [&](int64_t position, std::span<const double> logits) {
    const double total = log_sum_exp(logits);
    if (position + 1 < size) {
      const TokenId next = ids[static_cast<size_t>(position + 1)];
      nll_sum += total - logits[static_cast<size_t>(next)];
      if (places == Places::all)
        result.places.push_back(token_logprobs(logits, next, std::min(n_top, context.model().vocab_size())));
      return;
    }
    result.logsumexp = total;
    result.top = engine::best_logits(logits, n_top);
  };
  context.decode_all(ids, add, 0, {.progress = progress});
  result.mean_nll = size > 1 ? nll_sum / static_cast<double>(size - 1) : 0;
  result.logits_digest = context.logits_digest();
  result.kv_digest = context.kv_digest();
  return result;
}

}  // namespace assay
