// The sampling chain against expectations written with numpy (tests/data/make_sampler.py), the
// generator against its published vectors, and the properties that the chain promises.
#include "assay/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>

#include "assay/error.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/sampling_steps.h"
#include "support/shared_data.h"

namespace assay {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

json::value read_json(const std::string& name) {
  std::stringstream text;
  text << std::ifstream(test::data(name)).rdbuf();
  return json::parse(text.str());
}

double number(const json::object& o, std::string_view key) { return o.at(key).to_number<double>(); }

SamplerOptions options_of(const json::object& o) {
  SamplerOptions s;
  s.temperature = number(o, "temperature");
  s.dynamic_range = number(o, "dynamic_range");
  s.dynamic_exponent = number(o, "dynamic_exponent");
  s.top_k = o.at("top_k").to_number<int64_t>();
  s.top_p = number(o, "top_p");
  s.min_p = number(o, "min_p");
  s.typical_p = number(o, "typical_p");
  s.top_n_sigma = number(o, "top_n_sigma");
  s.xtc_probability = number(o, "xtc_probability");
  s.xtc_threshold = number(o, "xtc_threshold");
  s.penalty_last_n = o.at("penalty_last_n").to_number<int64_t>();
  s.repeat_penalty = number(o, "repeat_penalty");
  s.frequency_penalty = number(o, "frequency_penalty");
  s.presence_penalty = number(o, "presence_penalty");
  s.dry_multiplier = number(o, "dry_multiplier");
  s.dry_base = number(o, "dry_base");
  s.dry_allowed_length = o.at("dry_allowed_length").to_number<int64_t>();
  s.dry_penalty_last_n = o.at("dry_penalty_last_n").to_number<int64_t>();
  for (const json::value& b : o.at("logit_bias").as_array()) {
    s.logit_bias.push_back({b.at(0).to_number<TokenId>(), static_cast<float>(b.at(1).to_number<double>())});
  }
  return s;
}

TEST(Philox, KnownAnswers) {  // from the authors' Random123 distribution, kat_vectors
  using engine::philox4x32;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Sampler, EveryStepAndTheChainAsNumpyHasThem) {
  const json::value data = read_json("sampler.json");
  std::vector<std::string> pieces;
  for (const json::value& p : data.at("pieces").as_array()) pieces.emplace_back(p.as_string());
  int n = 0;
  for (const json::value& c : data.at("cases").as_array()) {
    SCOPED_TRACE(n++);
    SamplerOptions options = options_of(c.at("options").as_object());
    options.seed = c.at("seed").to_number<uint64_t>();
    options.dry_sequence_breakers = json::value_to<std::vector<std::string>>(data.at("breakers"));
    const auto logits = json::value_to<std::vector<float>>(c.at("logits"));
    const auto history = json::value_to<std::vector<TokenId>>(c.at("history"));
    Sampler sampler(options, static_cast<int64_t>(pieces.size()),
                    [&](TokenId id) { return pieces.at(static_cast<size_t>(id)); });
    sampler.start(history, c.at("request").to_number<uint64_t>());
    const TokenId token = sampler.sample(logits, c.at("position").to_number<int64_t>());
    std::vector<TokenId> ids;
    for (const Candidate& x : sampler.candidates()) ids.push_back(x.id);
    ASSERT_EQ(ids, json::value_to<std::vector<TokenId>>(c.at("ids")));
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_NEAR(sampler.candidates()[i].probability, c.at("probabilities").at(i).to_number<double>(), 2e-6);
    }
    ASSERT_EQ(token, c.at("token").to_number<TokenId>());
  }
  EXPECT_EQ(n, 250);
}

SamplerOptions plain() {
  SamplerOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f};
  double sum = 0;
  for (float x : logits) sum += std::exp(x);
  Sampler sampler(plain(), 5);
  constexpr int kDraws = 200'000;
  std::array<int, 5> counts{};
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.sample(logits, i))];
  double chi_squared = 0;
  for (size_t i = 0; i < 5; ++i) {
    const double expected = kDraws * std::exp(logits[i]) / sum;
    chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi_squared, 18.5);  // 4 degrees of freedom: exceeded by chance once in 1,000
}

TEST(Sampler, ADrawDependsOnSeedRequestAndPositionOnly) {
  std::vector<float> logits(100);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
  const auto stream = [&](uint64_t seed, uint64_t request) {
    SamplerOptions o = plain();
    o.seed = seed;
    Sampler sampler(o, 100);
    sampler.start({}, request);
    std::vector<TokenId> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(sampler.sample(logits, i));
    return ids;
  };
  EXPECT_EQ(stream(5, 1), stream(5, 1));
  EXPECT_NE(stream(5, 1), stream(6, 1));
  EXPECT_NE(stream(5, 1), stream(5, 2));
  Sampler sampler(plain(), 100);
  const TokenId late = sampler.sample(logits, 1000);
  for (int i = 0; i < 17; ++i) sampler.sample(logits, i);
  EXPECT_EQ(sampler.sample(logits, 1000), late);
}

// What a device that returns the best logits alone must lead to.
TEST(Sampler, TheBestLogitsGiveTheTokenThatAllGive) {
  constexpr int64_t kVocab = 500;
  std::vector<SamplerOptions> chains(8);
  chains[0].temperature = 0;
  chains[1].top_k = 1;
  chains[2].top_k = 7, chains[2].typical_p = 0.8;
  chains[3].top_k = 12, chains[3].xtc_probability = 0.7, chains[3].top_p = 1;
  chains[4].dynamic_range = 0.5, chains[4].min_p = 0.2;
  chains[5].temperature = 0, chains[5].top_k = 0;
  chains[6].min_p = 0, chains[6].top_p = 1, chains[6].top_k = 499;
  uint32_t state = 1;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  for (size_t c = 0; c < chains.size(); ++c) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      chains[c].seed = seed;
      Sampler whole(chains[c], kVocab), few(chains[c], kVocab);
      const int64_t n = few.n_ranked();
      ASSERT_GT(n, 0) << c;
      std::vector<float> logits(kVocab);
      for (float& x : logits) x = static_cast<float>(next() >> 28) / 4.0f - 2.0f;  // many ties
      if (seed % 4 == 0) std::fill(logits.begin() + 5, logits.end(), -std::numeric_limits<float>::infinity());
      std::vector<RankedLogit> best;
      for (int64_t i = 0; i < kVocab; ++i) {
        const float x = logits[static_cast<size_t>(i)];
        if (std::isfinite(x)) best.push_back({static_cast<TokenId>(i), x});
      }
      std::stable_sort(best.begin(), best.end(),
                       [](const RankedLogit& a, const RankedLogit& b) { return a.logit > b.logit; });
      best.resize(std::min(best.size(), static_cast<size_t>(n)));
      ASSERT_EQ(few.sample(best, 3), whole.sample(logits, 3)) << c << ", seed " << seed;
      ASSERT_EQ(few.candidates().size(), whole.candidates().size());
      for (size_t i = 0; i < few.candidates().size(); ++i) {
        EXPECT_EQ(few.candidates()[i].id, whole.candidates()[i].id);
        EXPECT_EQ(few.candidates()[i].probability, whole.candidates()[i].probability);
      }
    }
  }
  SamplerOptions biased, penalised, every, both;
  both.logit_bias = {{3, -std::numeric_limits<float>::infinity()}, {4, 1.0f}};
  biased.logit_bias = {{3, 1.0f}};
  penalised.repeat_penalty = 1.1;
  every.top_k = 0;
  for (const SamplerOptions& o : {biased, penalised, every, both}) EXPECT_EQ(Sampler(o, kVocab).n_ranked(), 0);
  Sampler greedy(chains[0], kVocab);
  EXPECT_THROW(greedy.sample(std::span<const RankedLogit>(), 0), Error);
}

// Where the best say nothing, because one of them may not be drawn, the sampler says so; else they give what all give.
TEST(Sampler, TheBestLogitsDecideWhereNoneIsForbidden) {
  constexpr int64_t kVocab = 60;
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  uint32_t state = 7;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  for (const int64_t top_k : {1, 9}) {
    SamplerOptions options;
    options.top_k = top_k, options.temperature = top_k == 1 ? 0 : 1;
    options.logit_bias = {{41, kMinusInfinity}, {5, kMinusInfinity}, {41, kMinusInfinity}};
    Sampler whole(options, kVocab), few(options, kVocab);
    EXPECT_EQ(few.n_ranked(), top_k);
    int n_decided = 0, n_left = 0;
    for (int round = 0; round < 200; ++round) {
      std::vector<float> logits(kVocab);
      std::vector<RankedLogit> best;
      for (TokenId id = 0; id < static_cast<TokenId>(kVocab); ++id) {
        logits[static_cast<size_t>(id)] = static_cast<float>(next() >> 28) / 4.0f;  // many ties
        best.push_back({id, logits[static_cast<size_t>(id)]});
      }
      std::stable_sort(best.begin(), best.end(),
                       [](const RankedLogit& a, const RankedLogit& b) { return a.logit > b.logit; });
      best.resize(static_cast<size_t>(top_k));
      const bool has_forbidden =
          std::any_of(best.begin(), best.end(), [](const RankedLogit& x) { return x.id == 5 || x.id == 41; });
      EXPECT_EQ(few.decides(best), !has_forbidden);
      if (has_forbidden) {
        EXPECT_THROW(few.sample(best, round), Error);
        ++n_left;
        continue;
      }
      EXPECT_EQ(few.sample(best, round), whole.sample(logits, round)) << round;
      ++n_decided;
    }
    EXPECT_GT(n_decided, 20);
    EXPECT_GT(n_left, 3);
  }
}

// The best of all is looked for first; where it is forbidden, the best of the rest is what comes, and the candidate left
// says the same.
TEST(Sampler, GreedyIsTheBestOfWhatIsNotForbidden) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  SamplerOptions options;
  options.temperature = 0;
  options.logit_bias = {{3, kMinusInfinity}, {70, kMinusInfinity}};
  Sampler sampler(options, 200);
  std::vector<float> logits(200, 0.5f);
  const auto expect = [&](TokenId id) {
    EXPECT_EQ(sampler.sample(logits, 0), id);
    ASSERT_EQ(sampler.candidates().size(), 1u);
    EXPECT_EQ(sampler.candidates()[0].id, id);
    EXPECT_EQ(sampler.candidates()[0].logit, logits[static_cast<size_t>(id)]);
  };
  logits[130] = 2;
  expect(130);
  logits[70] = 2;  // the first of two best ones, and forbidden
  expect(130);
  logits[3] = 9;
  expect(130);
  logits[0] = 2;
  expect(0);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(sampler.sample(logits, 0), Error);
  options.logit_bias.clear();
  for (TokenId id = 0; id < 200; ++id) options.logit_bias.push_back({id, kMinusInfinity});
  EXPECT_THROW(Sampler(options, 200).sample(std::vector<float>(200, 1.0f), 0), Error);
}

TEST(Sampler, TheFirstEqualOfAnySizeAnywhere) {
  for (const size_t size : {1u, 63u, 64u, 65u, 127u, 128u, 200u}) {
    std::vector<float> logits(size, -1.0f);
    EXPECT_EQ(engine::first_equal(logits, 1.0f), static_cast<TokenId>(size)) << size;
    for (size_t i = size; i-- > 0;) {
      logits[i] = 1.0f;
      EXPECT_EQ(engine::first_equal(logits, 1.0f), static_cast<TokenId>(i)) << size;
    }
  }
}

TEST(Sampler, TemperatureZeroIsTheLargestLogitAndTheLowestIdAmongEquals) {
  SamplerOptions o;
  o.temperature = 0;
  std::vector<float> logits(1003, 1.0f);
  EXPECT_EQ(Sampler(o, 1003).sample(logits, 0), 0);
  logits[500] = logits[1002] = logits[77] = 3.0f;
  EXPECT_EQ(Sampler(o, 1003).sample(logits, 0), 77);
  EXPECT_EQ(argmax(logits), 77);
  o.repeat_penalty = 100;
  Sampler penalised(o, 1003);
  penalised.start(std::vector<TokenId>{77});
  EXPECT_EQ(penalised.sample(logits, 0), 500);
  penalised.accept(500);
  EXPECT_EQ(penalised.sample(logits, 0), 1002);
}

TEST(Sampler, TopKKeepsTheLowestIdsAmongEquals) {
  SamplerOptions o = plain();
  o.top_k = 3;
  const std::vector<float> logits = {1, 2, 1, 1, 2, 0, 1};
  Sampler sampler(o, 7);
  sampler.sample(logits, 0);
  ASSERT_EQ(sampler.candidates().size(), 3u);
  EXPECT_EQ(sampler.candidates()[0].id, 0);
  EXPECT_EQ(sampler.candidates()[1].id, 1);
  EXPECT_EQ(sampler.candidates()[2].id, 4);
}

// Blocks that are passed over and lists that are never made: against a sort of everything, and against the plain steps.
TEST(Sampler, StepsOverAWholeVocabularyAreThePlainSteps) {
  for (const size_t size : {size_t{1}, size_t{63}, size_t{65}, size_t{5000}}) {
    std::vector<float> logits(size);
    uint32_t state = 12345;
    for (float& x : logits) {  // few different values: many ties
      state = state * 1664525u + 1013904223u;
      x = static_cast<float>(state >> 24) / 16.0f;
      if (size > 1 && (state & 0xF00) == 0) x = -std::numeric_limits<float>::infinity();
    }
    const float best = engine::checked_max(logits);
    engine::Candidates all, fast;
    engine::select_top_k(logits, 0, all);
    engine::Candidates sorted = all;
    engine::rank(sorted);
    for (const int64_t k : {1, 2, 40, 64, 4999}) {
      if (k >= static_cast<int64_t>(size)) continue;
      ASSERT_TRUE(engine::select_top_k(logits, k, fast));
      ASSERT_EQ(fast.size(), std::min(sorted.size(), static_cast<size_t>(k)));
      for (size_t i = 0; i < fast.size(); ++i) ASSERT_EQ(fast[i].id, sorted[i].id) << k;
    }
    for (const double p : {0.0, 0.001, 0.05, 0.5, 0.9, 0.999999, 1.0}) {
      engine::Candidates plain = all;
      engine::top_p(plain, p, false);
      engine::select_top_p(logits, best, p, fast);
      ASSERT_EQ(fast.size(), plain.size()) << p;
      for (size_t i = 0; i < fast.size(); ++i) {
        ASSERT_EQ(fast[i].id, plain[i].id) << p;
        ASSERT_EQ(fast[i].probability, plain[i].probability) << p;
      }
      if (p == 0) continue;
      plain = all;
      engine::min_p(plain, p);
      engine::select_min_p(logits, best, p, fast);
      ASSERT_EQ(fast.size(), plain.size()) << p;
      for (size_t i = 0; i < fast.size(); ++i) ASSERT_EQ(fast[i].id, plain[i].id) << p;
    }
  }
}

// Lists that are not sorted, or only as far as they are kept, against lists that are sorted whole.
TEST(Sampler, TypicalAndXtcOfAWholeVocabularyAreThePlainSteps) {
  std::vector<float> logits(20'000);
  uint32_t state = 99;
  for (float& x : logits) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 20) / 300.0f;
  }
  engine::Candidates all;
  engine::select_top_k(logits, 0, all);
  for (const double p : {0.01, 0.3, 0.9, 0.99999}) {
    engine::Candidates fast = all, plain = all;
    engine::typical(fast, p);
    engine::softmax(plain);
    const double h = engine::entropy(plain);
    std::vector<std::pair<double, TokenId>> order;
    for (const Candidate& x : plain) order.emplace_back(std::fabs(-std::log(x.probability) - h), x.id);
    std::sort(order.begin(), order.end());
    double sum = 0;
    std::vector<TokenId> kept, found;
    for (size_t i = 0; i < order.size() && sum <= p; ++i) {
      kept.push_back(order[i].second);
      sum += plain[static_cast<size_t>(order[i].second)].probability;
    }
    for (const Candidate& x : fast) found.push_back(x.id);
    ASSERT_TRUE(std::is_sorted(fast.begin(), fast.end(), engine::ranks_before));
    std::sort(kept.begin(), kept.end());
    std::sort(found.begin(), found.end());
    ASSERT_NEAR(static_cast<double>(found.size()), static_cast<double>(kept.size()), 40)
        << p;  // ties of logits, which the plain order has not
    std::vector<TokenId> shared;
    std::set_intersection(kept.begin(), kept.end(), found.begin(), found.end(), std::back_inserter(shared));
    ASSERT_GE(shared.size() + 40, kept.size()) << p;
  }
  engine::Candidates ranked = all;
  engine::rank(ranked);
  engine::softmax(ranked);
  for (const double threshold : {0.0, 1e-5, 0.0003, 0.4, ranked[5].probability * (1 + 1e-7)}) {
    engine::Candidates fast = all, plain = ranked;
    ASSERT_TRUE(engine::xtc_unranked(fast, 0.5, threshold, 0.2)) << threshold;
    engine::xtc(plain, 0.5, threshold, 0.2);
    engine::order_by_id(plain);
    ASSERT_EQ(fast.size(), plain.size()) << threshold;
    for (size_t i = 0; i < fast.size(); ++i) ASSERT_EQ(fast[i].id, plain[i].id);
  }
  engine::Candidates undecided = all;
  EXPECT_FALSE(engine::xtc_unranked(undecided, 0.5, ranked[5].probability, 0.2));
  EXPECT_EQ(undecided.size(), all.size());
  EXPECT_TRUE(engine::xtc_unranked(undecided, 0.5, ranked[5].probability, 0.7));  // not drawn
}

TEST(Sampler, NoStepDropsTheLastCandidate) {
  SamplerOptions o = plain();
  o.top_p = 0;
  o.min_p = 1;
  o.typical_p = 0;
  o.top_n_sigma = 1e-9;
  o.xtc_probability = 1;
  o.xtc_threshold = 0;
  o.temperature = 1e-30;
  const std::vector<float> logits = {3e38f, -3e38f, 0.0f};
  Sampler sampler(o, 3);
  EXPECT_EQ(sampler.sample(logits, 0), 0);
  EXPECT_EQ(sampler.candidates().size(), 1u);
}

TEST(Sampler, RefusesWhatIsNoNumber) {
  Sampler sampler(SamplerOptions{}, 40);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (size_t at : {0u, 31u, 39u}) {
      std::vector<float> logits(40, 0.0f);
      logits[at] = bad;
      EXPECT_THROW(sampler.sample(logits, 0), Error);
      EXPECT_THROW(argmax(logits), Error);
    }
  }
  EXPECT_THROW(sampler.sample(std::vector<float>(40, -std::numeric_limits<float>::infinity()), 0), Error);
  EXPECT_THROW(sampler.sample(std::vector<float>(39), 0), Error);
  EXPECT_THROW(sampler.accept(40), Error);
}

TEST(Sampler, RefusesOptionsOutOfRangeByName) {
  const auto message = [](auto change) -> std::string {
    SamplerOptions o;
    change(o);
    try {
      Sampler(o, 10);
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::bad_request);
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message([](auto& o) { o.top_p = -0.5; }), HasSubstr("top-p is -0.5"));
  EXPECT_THAT(message([](auto& o) { o.temperature = std::nan(""); }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& o) { o.min_p = 2; }), HasSubstr("min-p"));
  EXPECT_THAT(message([](auto& o) { o.repeat_penalty = 0; }), HasSubstr("repeat penalty"));
  EXPECT_THAT(message([](auto& o) { o.dry_allowed_length = -1; }), HasSubstr("dry allowed length"));
  EXPECT_THAT(message([](auto& o) { o.penalty_last_n = -2; }), HasSubstr("repeat last n"));
  EXPECT_THAT(message([](auto& o) { o.dry_sequence_breakers = {""}; }), HasSubstr("breaker"));
  EXPECT_THAT(message([](auto& o) { o.logit_bias = {{10, 1.0f}}; }), HasSubstr("token 10"));
  EXPECT_THAT(message([](auto& o) { o.logit_bias = {{1, std::nanf("")}}; }), HasSubstr("logit bias"));
  EXPECT_EQ(message([](auto& o) { o.top_k = -7; }), "accepted");
}

}  // namespace
}  // namespace assay
