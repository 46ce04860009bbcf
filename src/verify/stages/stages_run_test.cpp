// The stages that run a model or its sampler: silent on the right engine, and each sees the faults
// of its own part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "assay/error.h"
#include "ops/plan/forwarding_executor.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include "verify/reference_sampler.h"
#include "verify/stages/stages.h"

namespace assay::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ContextOptions on_one_thread() {
  ContextOptions options;
  options.n_threads = 1;
  return options;
}

// An executor with something done to it on the way.
struct Faults {
  bool truncates = true;
  bool shifts_single_tokens = false;  // one that comes alone, but for the first, is taken for the next id
  bool mixes_sequences = false;       // in a batch of two, every token is taken for the second sequence's first
  std::function<void(std::span<float> logits)> logits;
};

class FaultyExecutor final : public ops::ForwardingExecutor {
 public:
  FaultyExecutor(std::unique_ptr<ops::Executor> inner, Faults faults, int64_t vocab_size)
      : ForwardingExecutor(std::move(inner)), faults_(std::move(faults)), vocab_size_(vocab_size) {}

  void run(const ops::Batch& batch) override {
    std::vector<int32_t> tokens(batch.tokens.begin(), batch.tokens.end());
    if (faults_.shifts_single_tokens && tokens.size() == 1 && batch.positions[0] > 0)
      tokens[0] = (tokens[0] + 1) % static_cast<int32_t>(vocab_size_);
    const bool has_two = std::count(batch.sequences.begin(), batch.sequences.end(), 1) > 0;
    if (faults_.mixes_sequences && has_two) std::fill(tokens.begin(), tokens.end(), tokens[0]);
    ForwardingExecutor::run({tokens, batch.positions, batch.sequences, batch.outputs, batch.request});
  }
  std::span<const float> logits(int64_t i) const override {
    changed_.assign(ForwardingExecutor::logits(i).begin(), ForwardingExecutor::logits(i).end());
    if (faults_.logits) faults_.logits(changed_);
    return changed_;
  }
  void truncate(int sequence, int64_t n) override {
    ForwardingExecutor::truncate(sequence, faults_.truncates || n == 0 ? n : n - 1);
  }

 private:
  Faults faults_;
  int64_t vocab_size_;
  mutable std::vector<float> changed_;
};

class StagesThatRun : public ::testing::Test {
 protected:
  Subject subject(const ContextOptions& options = on_one_thread(), uint32_t vocab_size = 96) {
    test::TinyLlama spec;
    spec.dtype = tensor::DType::Q4_K;
    spec.vocab_size = vocab_size;
    test::TinyLlamaWriter(spec).file().write(folder_ / "m.gguf");
    return own_subject(Model::load((folder_ / "m.gguf").string(), {.tokenizer = false}), options);
  }
  Subject faulty(const Faults& faults) {
    Subject made = subject();
    made.make_executor = [right = made.make_executor, faults, n = made.model->vocab_size()](
                             int64_t n_ctx, int64_t n_batch, int n_sequences) {
      return std::make_unique<FaultyExecutor>(right(n_ctx, n_batch, n_sequences), faults, n);
    };
    return made;
  }
  static void expect(const VerifyStage& stage, Verdict verdict, const std::string& text) {
    EXPECT_EQ(stage.verdict, verdict) << stage.to_text();
    EXPECT_THAT(stage.to_text(), HasSubstr(text));
  }

  test::TempFolder folder_;
  base::ThreadPool pool_{1};
  StageRun run_{pool_, true};
};

TEST_F(StagesThatRun, TheRightEnginePassesInEverySetting) {
  for (const Numerics numerics : {Numerics::exact, Numerics::f32, Numerics::oracle}) {
    for (const KvType cache : {KvType::f16, KvType::q8_0, KvType::f32}) {
      ContextOptions options = on_one_thread();
      options.numerics = numerics;
      options.cache_k = cache;
      if (numerics == Numerics::exact && cache == KvType::q8_0) options.activation_bits = 8;
      SCOPED_TRACE(std::string(name(numerics)) + " " + std::string(name(cache)));
      const Subject right = subject(options);
      expect(check_ops(right, run_).stage, Verdict::pass, "against float64");
      expect(check_kv_cache(right, run_), Verdict::pass, "the same bits");
      expect(check_logits(right, run_), Verdict::pass, "finite");
    }
  }
}

TEST_F(StagesThatRun, OpsKeepFiguresTokensAndAttention) {
  run_.attention_layers = {1, 1, 99};
  const OpsFindings found = check_ops(subject(), run_);
  EXPECT_GT(found.ops.size(), 30u);
  EXPECT_FALSE(found.first_failure);
  EXPECT_GT(found.median_slack, 1);
  EXPECT_EQ(found.tokens.size(), 40u);
  for (const TokenRisk& token : found.tokens) EXPECT_LT(token.kl_divergence, 1e-3);
  ASSERT_EQ(found.attention.size(), 1u);
  const VerifyReport::AttentionMap& map = found.attention[0];
  EXPECT_EQ(map.layer, 1);
  ASSERT_EQ(map.shares.size(), static_cast<size_t>(map.n_heads * map.n_positions * map.n_positions));
  for (int64_t row = 0; row < map.n_heads * map.n_positions; ++row) {
    double sum = 0;
    for (int64_t j = 0; j < map.n_positions; ++j) {
      const float share = map.shares[static_cast<size_t>(row * map.n_positions + j)];
      EXPECT_EQ(share == 0, j > row % map.n_positions);
      sum += static_cast<double>(share);
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST_F(StagesThatRun, OpsNameTheFirstWrongOperation) {
  Subject wrong = subject();
  wrong.declared.unit_roundoff = 0x1p-53;  // it says that it computes in double, which it does not
  wrong.declared.activation_bits = 0;
  const OpsFindings found = check_ops(wrong, run_);
  EXPECT_EQ(found.stage.verdict, Verdict::fail);
  ASSERT_TRUE(found.first_failure);
  EXPECT_EQ(found.first_failure->op, "blk.0.attn_norm");
  EXPECT_EQ(found.first_failure->layer, 0);
}

TEST_F(StagesThatRun, KvCacheSeesWaysThatDiffer) {
  expect(check_kv_cache(faulty({}), run_), Verdict::pass, "the same bits");
  Faults alone;
  alone.shifts_single_tokens = true;
  expect(check_kv_cache(faulty(alone), run_), Verdict::fail,
         "chunks of 1, 7, 12, 12, then tokens one by one: the cache differs from a prefill's, first "
         "in layer 0, K, position 32");
  Faults mixed;
  mixed.mixes_sequences = true;
  expect(check_kv_cache(faulty(mixed), run_), Verdict::fail, "beside another sequence");
  Faults uncut;
  uncut.truncates = false;
  expect(check_kv_cache(faulty(uncut), run_), Verdict::fail, "");
}

TEST_F(StagesThatRun, LogitsSeePoisonTailsAndConstants) {
  expect(check_logits(faulty({}), run_), Verdict::pass, "finite");
  Faults poison;
  poison.logits = [](std::span<float> logits) { logits[7] = std::nanf(""); };
  expect(check_logits(faulty(poison), run_), Verdict::fail, "the logit of token 7 ");
  Faults tail;
  tail.logits = [](std::span<float> logits) { std::fill(logits.end() - 3, logits.end(), 0.0f); };
  expect(check_logits(faulty(tail), run_), Verdict::fail, "token 93 of 96");
  Faults constant;
  constant.logits = [](std::span<float> logits) { std::fill(logits.begin(), logits.end(), 1.0f); };
  expect(check_logits(faulty(constant), run_), Verdict::fail, "every logit is 1");
  Faults unstable;
  unstable.logits = [n = std::make_shared<int>(0)](std::span<float> logits) {
    logits[0] += 1e-6f * static_cast<float>(++*n);
  };
  expect(check_logits(faulty(unstable), run_), Verdict::fail, "gives other logits");
}

// Each fault of a sampler, as a change of what the right one is asked or gives.
class StageOfTheSampler : public StagesThatRun {
 protected:
  using Sample = std::function<std::vector<TokenId>(const SamplerOptions&, std::span<const float>,
                                                    std::span<const TokenId>, int64_t)>;
  template <class Change>
  void expect_failure(Change change, const std::string& text) {
    Subject made = subject();
    const Sample right = made.sample;
    made.sample = [right, change](SamplerOptions options, std::span<const float> logits,
                                  std::span<const TokenId> history,
                                  int64_t n) { return change(right, options, logits, history, n); };
    expect(check_sampler(made, run_), Verdict::fail, text);
  }
};

TEST_F(StageOfTheSampler, TheRightOnePasses) { expect(check_sampler(subject(), run_), Verdict::pass, "settings"); }

TEST_F(StageOfTheSampler, SettingsThatAreNotUsed) {
  const auto with = [](auto set) {
    return [set](const Sample& right, SamplerOptions o, auto logits, auto history, int64_t n) {
      set(o);
      return right(o, logits, history, n);
    };
  };
  expect_failure(with([](SamplerOptions& o) { o.seed = 1; }), "another seed gives the same draws");
  expect_failure(with([](SamplerOptions& o) { o.temperature = 1; }), "temperature 0: ");
  expect_failure(with([](SamplerOptions& o) {
                   if (o.temperature > 0) o.temperature = 1;
                 }),
                 "temperature 0.5: ");
  expect_failure(with([](SamplerOptions& o) { o.top_k = 0; }), "top-k 7: token");
  expect_failure(with([](SamplerOptions& o) { o.top_p = 1; }), "top-p 0.6: token");
  expect_failure(with([](SamplerOptions& o) { o.min_p = 0; }), "min-p 0.1: token");
  expect_failure(with([](SamplerOptions& o) { o.repeat_penalty = 1; }), "a repeat penalty of 100 on token 0");
  expect_failure(with([](SamplerOptions& o) { o.frequency_penalty = 0; }), "frequency penalty 0.7: ");
  expect_failure(with([](SamplerOptions& o) { o.presence_penalty = 0; }), "presence penalty 2: ");
  expect_failure(with([](SamplerOptions& o) { o.logit_bias.clear(); }), "logit bias: ");
}

TEST_F(StageOfTheSampler, TemperatureBeforeTopP) {
  expect_failure(
      [](const Sample& right, SamplerOptions o, std::span<const float> logits, auto history, int64_t n) {
        std::vector<float> scaled(logits.begin(), logits.end());
        if (o.temperature > 0 && o.top_p < 1) {
          for (float& x : scaled) x /= static_cast<float>(o.temperature);
          o.temperature = 1;
        }
        return right(o, scaled, history, n);
      },
      "top-p 0.6, then temperature 3: ");
}

TEST_F(StageOfTheSampler, AGeneratorThatStandsStillAndPoisonThatIsMasked) {
  expect_failure(
      [](const Sample& right, const SamplerOptions& o, auto logits, auto history, int64_t n) {
        return std::vector<TokenId>(static_cast<size_t>(n), right(o, logits, history, 1)[0]);
      },
      "the generator stands still");
  expect_failure(
      [](const Sample& right, const SamplerOptions& o, std::span<const float> logits, auto history, int64_t n) {
        std::vector<float> masked(logits.begin(), logits.end());
        for (float& x : masked) x = std::isfinite(x) ? x : 0.0f;
        return right(o, masked, history, n);
      },
      "is passed over in silence");
}

TEST(ReferenceSampler, ByHand) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  SamplerOptions o;
  o.temperature = 1, o.top_k = 0, o.top_p = 0.8, o.min_p = 0;
  std::vector<double> p = reference_distribution(o, logits, {});
  EXPECT_NEAR(p[0], 0.625, 1e-6);
  EXPECT_NEAR(p[1], 0.375, 1e-6);
  EXPECT_EQ(p[2], 0);
  o.top_p = 1, o.min_p = 0.5;
  EXPECT_EQ(reference_distribution(o, logits, {})[2], 0);
  o.min_p = 0, o.temperature = 0.5;
  p = reference_distribution(o, logits, {});
  EXPECT_NEAR(p[0] / p[1], 25.0 / 9, 1e-5);
  o.temperature = 1, o.presence_penalty = 100;
  const std::vector<TokenId> history = {0};
  EXPECT_LT(reference_distribution(o, logits, history)[0], 1e-30);
}

TEST(ReferenceSampler, ChiSquareOfRightAndWrongDraws) {
  const std::vector<double> p = {0.5, 0.25, 0.25, 0};
  std::vector<TokenId> draws;
  for (int i = 0; i < 400; ++i) draws.push_back(i % 4 < 2 ? 0 : i % 4 - 1);
  const ChiSquare right = chi_square(draws, p);
  EXPECT_EQ(right.n_classes, 3);
  EXPECT_NEAR(right.statistic, 0, 1e-9);
  std::replace(draws.begin(), draws.end(), 2, 1);
  EXPECT_GT(chi_square(draws, p).statistic, chi_square(draws, p).limit());
  draws[0] = 3;
  EXPECT_EQ(chi_square(draws, p).n_impossible, 1);
}

class StagesWithAVocabulary : public StagesThatRun {
 protected:
  void SetUp() override {
    ASSAY_REQUIRE_FILE(test::smollm2());
    subject_ = own_subject(Model::load(test::smollm2().string()), on_one_thread());
  }
  void expect(Verdict verdict, const std::string& text) {
    StagesThatRun::expect(check_detokenizer(subject_, run_), verdict, text);
  }
  Subject subject_;
};

TEST_F(StagesWithAVocabulary, TextSeesAModelThatKnowsNoEnglish) {
  run_.suspect_file = false;
  StagesThatRun::expect(check_text(subject_, run_).stage, Verdict::pass, "48 tokens of plain English: 3.1");
  const auto right = subject_.make_executor;
  const auto with_logits = [&](auto change) {
    Faults faults;
    faults.logits = change;
    subject_.make_executor = [right, faults](int64_t n_ctx, int64_t n_batch, int n_sequences) {
      return std::make_unique<FaultyExecutor>(right(n_ctx, n_batch, n_sequences), faults, 49152);
    };
    return check_text(subject_, run_).stage;
  };
  StagesThatRun::expect(with_logits([](std::span<float> logits) { std::fill(logits.begin(), logits.end(), 0.0f); }),
                        Verdict::warn, "10.80 nats");
  StagesThatRun::expect(with_logits([](std::span<float> logits) { std::reverse(logits.begin(), logits.end()); }),
                        Verdict::fail, "a guess among all");
}

TEST_F(StagesWithAVocabulary, DetokenizerSeesBrokenCharactersAndShownControlTokens) {
  expect(Verdict::pass, "no character broken");
  const auto right = subject_.decode_stream;
  const auto tokenizer = subject_.model->tokenizer();
  subject_.decode_stream = [tokenizer](std::span<const TokenId> ids) {  // bytes as they come
    std::vector<std::string> parts;
    for (const TokenId id : ids) parts.push_back(tokenizer->piece(id, false));
    return parts;
  };
  expect(Verdict::fail, "which breaks a character");
  subject_.decode_stream = [tokenizer](std::span<const TokenId> ids) {  // every token made a text of its own
    std::vector<std::string> parts;
    for (const TokenId id : ids) {
      StreamDecoder decoder(tokenizer);
      parts.push_back(decoder.push(id) + decoder.finish());
    }
    return parts;
  };
  expect(Verdict::fail, "as a whole");
  subject_.decode_stream = right;
  subject_.decode = [tokenizer](std::span<const TokenId> ids, bool) { return tokenizer->decode(ids, true); };
  expect(Verdict::fail, "appears in an answer");
}

TEST_F(StagesThatRun, TheWholeReport) {
  subject();
  VerifyOptions options;
  options.quick = true;
  options.context = on_one_thread();
  std::vector<std::string> stages;
  options.on_stage = [&](const VerifyStage& stage) { stages.push_back(stage.id); };
  double last = 0;
  options.on_progress = [&](std::string_view, double share) { last = std::max(last, share); };
  const VerifyReport report = verify_model((folder_ / "m.gguf").string(), options);
  EXPECT_THAT(stages, ElementsAre("file", "metadata", "tokenizer", "template", "dequantisation", "ops", "kv_cache",
                                  "logits", "sampler", "detokenizer", "text"));
  EXPECT_EQ(last, 1);
  EXPECT_FALSE(report.passed());  // it has no vocabulary, and says so
  EXPECT_THAT(report.to_text(), HasSubstr("FAIL  Tokenizer"));
  EXPECT_THAT(report.to_text(), HasSubstr("FAILED: 1 of 11 stages"));
  const boost::json::value json = boost::json::parse(report.to_json());
  EXPECT_EQ(json.at("stages").as_array().size(), 11u);
  EXPECT_EQ(json.at("stages").at(2).at("verdict").as_string(), "fail");
  EXPECT_FALSE(json.at("passed").as_bool());
  EXPECT_FALSE(json.at("cancelled").as_bool());
  EXPECT_EQ(json.at("ops").as_array().size(), report.ops.size());

  options.cancelled = [] { return true; };
  options.on_stage = {};
  const VerifyReport cancelled = verify_model((folder_ / "m.gguf").string(), options);
  EXPECT_TRUE(cancelled.cancelled);
  EXPECT_FALSE(cancelled.passed());
  EXPECT_TRUE(boost::json::parse(cancelled.to_json()).at("cancelled").as_bool());
  EXPECT_EQ(cancelled.stages.size(), 11u);
  for (const VerifyStage& stage : cancelled.stages) {  // what loading found stays
    EXPECT_EQ(stage.summary == "cancelled", stage.id != "tokenizer") << stage.id << " " << stage.summary;
  }
  EXPECT_THROW(verify_model((folder_ / "none.gguf").string(), options), Error);
}

}  // namespace
}  // namespace assay::verify
