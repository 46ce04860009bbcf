// A model of tests/data/goldens run over its golden's tokens, and how far it is off.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "assay/context.h"
#include "support/goldens.h"
#include "support/logits.h"

namespace assay::test {

// The largest difference from the golden's numbers: log-sum-exp of every position, -log p of every next token, logits
// of the last three positions.
inline double worst_of(Context& context, const TinyGolden& golden) {
  double worst = 0;
  const auto n = static_cast<int64_t>(golden.ids.size());
  const auto take = [&worst](double found, double expected) {
    const double off = std::abs(found - expected);
    worst = off <= worst ? worst : off;  // a NaN is taken
  };
  context.decode_all(golden.ids, [&](int64_t position, std::span<const double> logits) {
    const auto i = static_cast<size_t>(position);
    const double sum = log_sum_exp(logits);
    take(sum, golden.logsumexp[i]);
    if (position + 1 < n) take(sum - logits[static_cast<size_t>(golden.ids[i + 1])], golden.nll[i]);
    if (position + 3 < n) return;
    const std::vector<double>& expected = golden.logits_last3[static_cast<size_t>(position + 3 - n)];
    ASSERT_EQ(logits.size(), expected.size());
    for (size_t j = 0; j < expected.size(); ++j) take(logits[j], expected[j]);
  });
  EXPECT_EQ(context.n_past(), n);
  return worst;
}

}  // namespace assay::test
