// The choice of keys against a plain sort, and attention over chosen keys against attention, by bits, and against
// softmax in double.
#include "ops/attention/choose_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "assay/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/sparse_attention.h"
#include "ops/plan/cached_run.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "support/random_weights.h"

namespace assay::ops {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::vector<T> values(int64_t n, uint64_t seed) {
  test::Random random(seed);
  std::vector<T> x(static_cast<size_t>(n));
  for (T& value : x) value = static_cast<T>(random.normal());
  return x;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// A plan of one op over one layer of the cache, its rows and the cache's.
template <class T>
struct OneOp {
  Plan plan;
  std::vector<std::vector<T>> memory;
  std::vector<T*> rows_of;
  std::vector<int32_t> positions, order;
  std::vector<T> keys, scratch;

  explicit OneOp(const CacheLayer& layer, int64_t n_positions, uint64_t seed)
      : order(static_cast<size_t>(n_positions)), keys(values<T>(n_positions * layer.head_dim, seed)),
        scratch(static_cast<size_t>(n_positions)) {
    plan.cache_layers = {layer};
    plan.n_ctx_max = kChoicePositionsMax;
  }
  ValueId add(const char* name, int64_t width, std::vector<T> rows) {
    plan.values.push_back({name, width});
    memory.push_back(std::move(rows));
    return static_cast<ValueId>(plan.values.size() - 1);
  }
  // Token i stands at position first + i.
  template <class Op>
  std::vector<T> run(const Op& op, int64_t first, int64_t n) {
    memory[static_cast<size_t>(op.y)].assign(static_cast<size_t>(n * plan.values[static_cast<size_t>(op.y)].width),
                                             T{-7});
    rows_of.clear(), positions.clear();
    for (std::vector<T>& rows : memory) rows_of.push_back(rows.data());
    for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(first + i));
    HostRows<T> rows;
    rows.plan = &plan, rows.values = rows_of, rows.positions = positions;
    const int64_t d = plan.cache_layers[0].head_dim;
    op.run(
        rows,
        CachedRun<T>{static_cast<int64_t>(order.size()), keys.data(), d, keys.data(), d, scratch.data(), order.data()},
        0, n);
    return memory[static_cast<size_t>(op.y)];
  }
};

constexpr int64_t kHeads = 5, kDim = 24, kPositions = 300;

template <class T>
ChooseKeys choice_in(OneOp<T>& one, int64_t n_tokens, int64_t n_chosen) {
  const ValueId q = one.add("q", kHeads * kDim, values<T>(n_tokens * kHeads * kDim, 11)),
                weights = one.add("weights", kHeads, values<T>(n_tokens * kHeads, 12));
  return {q, weights, 0, kHeads, kDim, one.add("y", n_chosen, {})};
}

// Every key's score by the formula, all of them sorted by score and then by position, the first ones taken.
template <class T>
std::vector<T> brute_force(const OneOp<T>& one, const ChooseKeys& op, int64_t token, int64_t n, int64_t n_chosen) {
  std::vector<std::pair<T, int64_t>> scored;
  const T *q = one.memory[static_cast<size_t>(op.q)].data() + token * kHeads * kDim,
          *w = one.memory[static_cast<size_t>(op.weights)].data() + token * kHeads;
  for (int64_t p = 0; p < n; ++p)
    scored.emplace_back(-index_score_ref(q, w, one.keys.data() + p * kDim, kHeads, kDim), p);
  std::sort(scored.begin(), scored.end());
  scored.resize(static_cast<size_t>(std::min(n, n_chosen)));
  std::vector<T> chosen;
  for (const auto& [score, p] : scored) chosen.push_back(static_cast<T>(p));
  std::sort(chosen.begin(), chosen.end());
  chosen.resize(static_cast<size_t>(n_chosen), T{-1});
  return chosen;
}

template <class T>
void expect_choices() {
  for (const int64_t n_chosen : {1, 2, 8, 63, 64, 250, 299, 300, 301, 2048}) {
    OneOp<T> one({1, kDim, 0, 0, true}, kPositions, 3);
    const ChooseKeys op = choice_in(one, 50, n_chosen);
    for (const int64_t first : {0, 40, 250}) {
      const std::vector<T> found = one.run(op, first, 50);
      for (int64_t t = 0; t < 50; ++t) {
        const std::vector<T> row(found.begin() + t * n_chosen, found.begin() + (t + 1) * n_chosen);
        ASSERT_EQ(row, brute_force(one, op, t, first + t + 1, n_chosen)) << n_chosen << " of " << first + t + 1;
        EXPECT_EQ(n_chosen_in(row.data(), n_chosen), std::min(n_chosen, first + t + 1));
      }
    }
  }
}

TEST(ChooseKeys, IsTheBestOfAPlainSort) {
  expect_choices<float>();
  expect_choices<double>();
}

TEST(ChooseKeys, AScoreIsTheFormulaInDouble) {
  const auto q = values<float>(kHeads * kDim, 1), w = values<float>(kHeads, 2), k = values<float>(kDim, 3);
  double expected = 0;
  for (size_t h = 0; h < kHeads; ++h) {
    double dot = 0;
    for (size_t j = 0; j < kDim; ++j) dot += static_cast<double>(q[h * kDim + j]) * static_cast<double>(k[j]);
    expected += static_cast<double>(w[h]) * std::max(dot, 0.0);
  }
  EXPECT_NEAR(static_cast<double>(index_score_ref(q.data(), w.data(), k.data(), kHeads, kDim)), expected, 1e-5);
}

TEST(ChooseKeys, EqualsGoToTheLowerPosition) {
  const std::vector<float> scores = {1, 3, 3, 0, 3, 2, 2, -0.0f, 0, 3};
  std::vector<int32_t> order(scores.size());
  const auto best = [&](int64_t n) {
    std::vector<float> y(static_cast<size_t>(n));
    choose_best(scores.data(), static_cast<int64_t>(scores.size()), n, order.data(), y.data());
    return y;
  };
  EXPECT_EQ(best(2), (std::vector<float>{1, 2}));
  EXPECT_EQ(best(4), (std::vector<float>{1, 2, 4, 9}));
  EXPECT_EQ(best(5), (std::vector<float>{1, 2, 4, 5, 9}));
  EXPECT_EQ(best(8), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 9}));  // +0 and -0 are equal
  std::vector<float> all_alike(200, 0.5f), y(7);
  order.resize(200);
  choose_best(all_alike.data(), 200, 7, order.data(), y.data());
  EXPECT_EQ(y, (std::vector<float>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(ChooseKeys, ABlockIsAsGoodAsItsBestKey) {
  ChooseKeys op{0, kNone, 0, 1, kDim, 1, 4, 1};
  const std::vector<float> of_keys = {5, 0, 0, 0, 1, 1, 9, 1, 8, 8, 8, 8, 0, 0};
  const auto best = [&](std::vector<float> scores, int64_t n_chosen) {
    std::vector<int32_t> order(scores.size());
    std::vector<float> y(static_cast<size_t>(n_chosen));
    choose_by(op, scores.data(), static_cast<int64_t>(scores.size()), n_chosen, order.data(), y.data());
    return y;
  };
  EXPECT_EQ(best(of_keys, 8), (std::vector<float>{4, 5, 6, 7, 12, 13, -1, -1}));  // the last one is always in
  EXPECT_EQ(best(of_keys, 4), (std::vector<float>{12, 13, -1, -1}));
  op.n_local = 0;
  EXPECT_EQ(best(of_keys, 8), (std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(best({2, 2, 3, 3, 0, 3, 0, 0, 3, 3}, 4), (std::vector<float>{0, 1, 2, 3}));  // equals: the lower block
  EXPECT_EQ(best(of_keys, 16), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, -1, -1}));  // all
  for (const size_t place : {0, 6, 13}) {
    std::vector<float> poisoned = of_keys;
    poisoned[place] = kNan;
    for (const int64_t n_local : {0, 1}) {
      op.n_local = n_local;
      for (const float p : best(poisoned, 8)) EXPECT_TRUE(std::isnan(p)) << place;
    }
  }
}

// Without weights a score is the product itself, whatever its sign.
TEST(ChooseKeys, OneHeadWithoutWeightsHasNoReLU) {
  const auto q = values<float>(kDim, 1), k = values<float>(kDim, 3);
  std::vector<float> minus;
  for (const float x : q) minus.push_back(-x);
  const float one = 1, score = index_score_ref(q.data(), nullptr, k.data(), 1, kDim);
  EXPECT_NE(score, 0.0f);
  EXPECT_EQ(index_score_ref(minus.data(), nullptr, k.data(), 1, kDim), -score);
  EXPECT_EQ(std::max(score, 0.0f), index_score_ref(q.data(), &one, k.data(), 1, kDim));
}

TEST(ChooseKeys, PoisonReachesTheChoiceWhereThereIsOne) {
  OneOp<float> one({1, kDim, 0, 0, true}, kPositions, 3);
  const ChooseKeys op = choice_in(one, 12, 8);
  one.keys[2 * kDim + 5] = kNan;
  const std::vector<float> found = one.run(op, 0, 12);
  for (int64_t t = 0; t < 12; ++t) {
    for (int64_t i = 0; i < 8; ++i)
      EXPECT_EQ(std::isnan(found[static_cast<size_t>(t * 8 + i)]), t >= 8) << t;  // before, all keys are taken
  }
}

TEST(ChooseKeys, RefusesWhatDoesNotFit) {
  OneOp<float> one({1, kDim, 0, 0, true}, kPositions, 3);
  const ChooseKeys right = choice_in(one, 1, 8);
  const auto refused = [&](const ChooseKeys& op) {
    const Op of{op, "blk.0.indexer.choice", 0};
    try {
      op.check(CheckScope(one.plan, of));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("fine");
  };
  EXPECT_EQ(refused(right), "fine");
  ChooseKeys wrong = right;
  wrong.n_heads = 0;
  EXPECT_NE(refused(wrong).find("blk.0.indexer.choice: 0 index heads"), std::string::npos);
  wrong = right, wrong.head_dim = 23;
  EXPECT_NE(refused(wrong).find("elements of an index key"), std::string::npos);
  wrong = right, wrong.weights = right.q;
  EXPECT_NE(refused(wrong).find("weights of index heads"), std::string::npos);
  one.plan.n_ctx_max = 0;
  EXPECT_NE(refused(right).find("16777216 positions"), std::string::npos);
}

// ---- Attention over a choice: 6 heads of 40 elements over one KV head, values of 32 that lie in the keys.
constexpr int64_t kQueryHeads = 6, kHeadDim = 40, kValueDim = 32;

template <class T>
SparseAttention attention_in(OneOp<T>& one, int64_t n_tokens, int64_t n_chosen, std::vector<T> chosen) {
  const ValueId q = one.add("q", kQueryHeads * kHeadDim, values<T>(n_tokens * kQueryHeads * kHeadDim, 21));
  const ValueId list = one.add("chosen", n_chosen, std::move(chosen));
  return {q, list, 0, kQueryHeads, 1, kHeadDim, 0.3, one.add("y", kQueryHeads * kValueDim, {})};
}

std::vector<float> attention_rows(const OneOp<float>& one, const SparseAttention& op, const std::vector<float>& keys,
                                  int64_t token, int64_t last) {
  std::vector<float> y(kQueryHeads * kValueDim);
  const auto n = static_cast<int64_t>(keys.size()) / kHeadDim;
  for (int64_t head = 0; head < kQueryHeads; ++head) {
    attention_ref(one.memory[static_cast<size_t>(op.q)].data() + (token * kQueryHeads + head) * kHeadDim,
                  {keys.data(), n, kHeadDim, kHeadDim}, {keys.data(), n, kValueDim, kHeadDim}, 0, last, {0.3f},
                  y.data() + head * kValueDim);
  }
  return y;
}

TEST(SparseAttention, OverAllKeysIsAttention) {
  OneOp<float> one({1, kHeadDim, 0, kValueDim, true}, 700, 5);
  for (const int64_t position : {0, 5, 255, 256, 600}) {
    OneOp<float> own = one;
    std::vector<float> all(700, -1.0f);
    for (int64_t p = 0; p <= position; ++p) all[static_cast<size_t>(p)] = static_cast<float>(p);
    const SparseAttention op = attention_in(own, 1, 700, all);
    const std::vector<float> found = own.run(op, position, 1);
    EXPECT_TRUE(same_bits(found, attention_rows(own, op, own.keys, 0, position))) << position;
  }
}

// The contract: the i-th chosen key as if it stood at position i.
TEST(SparseAttention, IsAttentionOverTheListOfChosenKeys) {
  for (const int64_t n_chosen : {1, 3, 300, 513}) {
    OneOp<float> one({1, kHeadDim, 0, kValueDim, true}, 700, 5);
    std::vector<float> list, gathered;
    test::Random random(9);
    for (int64_t p = 0; p < 700 && static_cast<int64_t>(list.size()) < n_chosen; ++p) {
      if (700 - p > n_chosen - static_cast<int64_t>(list.size()) && random.below(4) == 0) continue;
      list.push_back(static_cast<float>(p));
      gathered.insert(gathered.end(), one.keys.begin() + p * kHeadDim, one.keys.begin() + (p + 1) * kHeadDim);
    }
    ASSERT_EQ(static_cast<int64_t>(list.size()), n_chosen);
    const SparseAttention op = attention_in(one, 1, n_chosen, list);
    EXPECT_TRUE(same_bits(one.run(op, 699, 1), attention_rows(one, op, gathered, 0, n_chosen - 1))) << n_chosen;
  }
}

TEST(SparseAttention, IsSoftmaxOverTheChosenKeys) {
  const std::vector<double> list = {2, 3, 17, 40, 99, -1, -1};
  OneOp<double> one({1, kHeadDim, 0, kValueDim, true}, 100, 5);
  const SparseAttention op = attention_in(one, 1, 7, list);
  const std::vector<double> in_double = one.run(op, 99, 1);
  OneOp<float> narrow({1, kHeadDim, 0, kValueDim, true}, 100, 5);
  const SparseAttention op_f32 = attention_in(narrow, 1, 7, std::vector<float>(list.begin(), list.end()));
  std::copy(narrow.keys.begin(), narrow.keys.end(), one.keys.begin());
  std::copy(narrow.memory[static_cast<size_t>(op_f32.q)].begin(), narrow.memory[static_cast<size_t>(op_f32.q)].end(),
            one.memory[static_cast<size_t>(op.q)].begin());
  const std::vector<double> exact = one.run(op, 99, 1);
  const std::vector<float> found = narrow.run(op_f32, 99, 1);
  for (int64_t head = 0; head < kQueryHeads; ++head) {
    std::vector<double> shares, y(kValueDim, 0.0);
    double sum = 0;
    for (size_t i = 0; i < 5; ++i) {
      double score = 0;
      for (int64_t j = 0; j < kHeadDim; ++j)
        score += one.memory[static_cast<size_t>(op.q)][static_cast<size_t>(head * kHeadDim + j)] *
                 one.keys[static_cast<size_t>(list[i]) * kHeadDim + static_cast<size_t>(j)];
      shares.push_back(std::exp(score * 0.3));
      sum += shares.back();
    }
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < kValueDim; ++j)
        y[j] += shares[i] / sum * one.keys[static_cast<size_t>(list[i]) * kHeadDim + j];
    }
    for (size_t j = 0; j < kValueDim; ++j) {
      const size_t at = static_cast<size_t>(head * kValueDim) + j;
      EXPECT_NEAR(exact[at], y[j], 1e-13);
      EXPECT_NEAR(static_cast<double>(found[at]), y[j], 3e-6);
    }
  }
  EXPECT_EQ(in_double.size(), exact.size());
}

TEST(SparseAttention, OverAPoisonedChoiceIsNoNumber) {
  OneOp<float> one({1, kHeadDim, 0, kValueDim, true}, 100, 5);
  const SparseAttention op = attention_in(one, 1, 3, {kNan, kNan, kNan});
  for (const float y : one.run(op, 99, 1)) EXPECT_TRUE(std::isnan(y));
}

}  // namespace
}  // namespace assay::ops
