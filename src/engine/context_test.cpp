#include "assay/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "assay/error.h"
#include "engine/context_state.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

// One small model for all tests of this file; no vocabulary.
class ContextTest : public ::testing::TestWithParam<Numerics> {
 protected:
  ContextTest() {
    test::TinyLlama spec;
    spec.d_model = 64;
    spec.d_ff = 96;
    spec.head_dim = 16;
    spec.n_ctx_train = 64;
    test::TinyLlamaWriter(spec).file().write(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string(), {.tokenizer = false});
    options_.numerics = GetParam();
    options_.n_threads = 2;
  }

  static std::vector<TokenId> tokens(int n) {
    std::vector<TokenId> ids;
    for (int i = 0; i < n; ++i) ids.push_back((i * 37 + 11) % 96);
    return ids;
  }
  static std::vector<double> last_logits(Context& context, std::span<const TokenId> ids) {
    context.decode(ids);
    return {context.logits_double().begin(), context.logits_double().end()};
  }
  static std::string refusal(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::bad_request);
      return error.what();
    }
    return "no error";
  }

  test::TempFolder folder_;
  std::shared_ptr<const Model> model_;
  ContextOptions options_;
};

INSTANTIATE_TEST_SUITE_P(All, ContextTest, ::testing::Values(Numerics::exact, Numerics::f32, Numerics::oracle),
                         [](const auto& parameters) { return std::string(name(parameters.param)); });

TEST_P(ContextTest, TellsWhatItIs) {
  Context context(model_, options_);
  EXPECT_EQ(context.n_ctx(), 64);
  EXPECT_EQ(context.options().n_ubatch, 64);
  EXPECT_EQ(context.n_past(), 0);
  EXPECT_EQ(model_->vocab_size(), 96);
  EXPECT_EQ(model_->n_layers(), 2);
  EXPECT_EQ(model_->architecture(), "llama");
  EXPECT_EQ(model_->name(), "tiny");
  EXPECT_EQ(model_->weights_type(), "F32");
  EXPECT_EQ(model_->tokenizer(), nullptr);
  EXPECT_EQ(model_->chat_template(), nullptr);
  EXPECT_GT(context.memory().cache_bytes, 0);
  EXPECT_GT(context.memory().arena_bytes, 0);
  EXPECT_EQ(context.memory().weights_bytes, model_->weights_bytes());
  EXPECT_EQ(context.kernels() == "oracle", GetParam() == Numerics::oracle);
}

TEST_P(ContextTest, RefusesBeforeAnyWork) {
  Context context(model_, options_);
  const std::vector<TokenId> prompt = tokens(60);
  EXPECT_THAT(refusal([&] { (void)context.logits(); }), HasSubstr("no token was run"));
  context.decode(prompt);
  const std::string before = context.kv_digest();
  EXPECT_THAT(refusal([&] { context.decode(tokens(5)); }),
              HasSubstr("5 tokens after 60 do not fit into the 64 positions of the context; a larger n_ctx"));
  EXPECT_THAT(refusal([&] { context.decode(std::vector<TokenId>{1, -1}); }), HasSubstr("from 0 to 95, found -1"));
  EXPECT_THAT(refusal([&] { context.decode(std::vector<TokenId>{96}); }), HasSubstr("from 0 to 95, found 96"));
  EXPECT_THAT(refusal([&] { context.decode({}); }), HasSubstr("at least one token"));
  EXPECT_THAT(refusal([&] { context.decode(tokens(1), 1); }), HasSubstr("sequence: needs 0 to 0, found 1"));
  EXPECT_THAT(refusal([&] { context.truncate(-1); }), HasSubstr("truncate"));
  EXPECT_EQ(context.kv_digest(), before);
  EXPECT_EQ(context.n_past(), 60);
  context.decode(tokens(4));
  EXPECT_EQ(context.n_past(), 64);
}

TEST_P(ContextTest, RefusesOptions) {
  const auto with = [&](auto change) {
    ContextOptions options = options_;
    change(options);
    return refusal([&] { Context(model_, options); });
  };
  EXPECT_THAT(with([](ContextOptions& o) { o.n_ctx = -1; }), HasSubstr("(-c)"));
  EXPECT_THAT(with([](ContextOptions& o) { o.n_ubatch = 0; }), HasSubstr("(-ub)"));
  EXPECT_THAT(with([](ContextOptions& o) { o.n_threads = -1; }), HasSubstr("(-t)"));
  EXPECT_THAT(with([](ContextOptions& o) { o.n_threads = 100'000; }), HasSubstr("(-t)"));
  EXPECT_THAT(with([](ContextOptions& o) { o.activation_bits = 10; }), HasSubstr("15 or 8 bits, found 10"));
  EXPECT_THAT(with([](ContextOptions& o) { o.activation_bits = 16; }),
              HasSubstr("mode fast alone (--numerics fast); in mode "));
  EXPECT_THAT(with([](ContextOptions& o) { o.n_sequences = 0; }), HasSubstr("sequences"));
  EXPECT_THAT(with([](ContextOptions& o) { o.numerics = Numerics::fast; }),
              HasSubstr("numerics fast: needs the tensor cores of a GPU"));
  EXPECT_THAT(
      with([](ContextOptions& o) { o.numerics = Numerics::fast, o.backend = Backend::cuda, o.n_gpu_layers = 1; }),
      HasSubstr("found -ngl 1"));
  const auto sharded = [](ContextOptions& o) {
    o.numerics = Numerics::exact, o.backend = Backend::cuda, o.split_mode = SplitMode::tensor, o.devices = {1, 0, 1};
  };
  EXPECT_THAT(with(sharded), HasSubstr("needs different GPUs (--device 0,1), found GPU 1 twice"));
  EXPECT_THAT(refusal([&] { Context(nullptr, options_); }), HasSubstr("needs a model"));
  if (options_.numerics == Numerics::oracle) return;  // it rounds no key
  EXPECT_THAT(with([](ContextOptions& o) { o.cache_k = KvType::q8_0; }),
              HasSubstr("for keys (-ctk): needs heads of a multiple of 32 elements, this model has 16"));
  EXPECT_THAT(with([](ContextOptions& o) { o.cache_v = KvType::q8_0; }), HasSubstr("for values (-ctv)"));
}

TEST_P(ContextTest, TruncationGoesBack) {
  Context context(model_, options_);
  const std::vector<TokenId> prompt = tokens(40);
  const std::vector<double> expected = last_logits(context, prompt);
  const std::string digest = context.kv_digest();
  context.decode(tokens(9));
  context.truncate(30);
  EXPECT_EQ(context.n_past(), 30);
  EXPECT_EQ(last_logits(context, std::span(prompt).subspan(30)), expected);
  EXPECT_EQ(context.kv_digest(), digest);
  context.clear();
  EXPECT_EQ(context.n_past(), 0);
  EXPECT_EQ(last_logits(context, prompt), expected);
  EXPECT_EQ(context.kv_digest(), digest);
}

TEST_P(ContextTest, AllLogitsEndWithTheLast) {
  Context one(model_, options_), all(model_, options_);
  const std::vector<TokenId> prompt = tokens(20);
  const std::vector<double> expected = last_logits(one, prompt);
  int64_t next = 0;
  std::vector<double> last;
  all.decode_all(prompt, [&](int64_t position, std::span<const double> logits) {
    EXPECT_EQ(position, next++);
    last.assign(logits.begin(), logits.end());
  });
  EXPECT_EQ(next, 20);
  EXPECT_EQ(last, expected);
  EXPECT_EQ(std::vector<double>(all.logits_double().begin(), all.logits_double().end()), expected);
  for (size_t i = 0; i < last.size(); ++i) EXPECT_EQ(all.logits()[i], static_cast<float>(last[i]));
  EXPECT_EQ(one.kv_digest(), all.kv_digest());
}

TEST_P(ContextTest, LogitsDigestNeedsAllPositions) {
  Context context(model_, options_);
  EXPECT_THAT(refusal([&] { (void)context.logits_digest(); }), HasSubstr("logits digest"));
  const std::vector<TokenId> prompt = tokens(12);
  context.decode_all(prompt, nullptr);
  const std::string digest = context.logits_digest();
  EXPECT_EQ(digest.size(), 32u);
  context.decode(tokens(1));
  EXPECT_THAT(refusal([&] { (void)context.logits_digest(); }), HasSubstr("all 13 positions"));
  context.truncate(5);
  context.decode_all(std::span(prompt).subspan(5), nullptr);
  EXPECT_THAT(refusal([&] { (void)context.logits_digest(); }), HasSubstr("logits digest"));
  context.clear();
  context.decode_all(std::span(prompt).subspan(0, 5), nullptr);
  context.decode_all(std::span(prompt).subspan(5), nullptr);
  EXPECT_EQ(context.logits_digest(), digest);
}

TEST_P(ContextTest, CancelsBetweenChunksAndTellsProgress) {
  options_.n_ubatch = 8;
  Context context(model_, options_);
  std::vector<int64_t> done;
  RunRequest request;
  request.progress = [&](int64_t n, int64_t total) {
    EXPECT_EQ(total, 30);
    done.push_back(n);
  };
  request.cancelled = [&] { return done.size() == 2; };
  EXPECT_EQ(context.decode(tokens(30), 0, request), 16);
  EXPECT_EQ(done, (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(context.n_past(), 16);
  EXPECT_THAT(refusal([&] { (void)context.logits(); }), HasSubstr("cancelled"));
  request.cancelled = nullptr;
  done.clear();
  context.truncate(0);
  EXPECT_EQ(context.decode(tokens(30), 0, request), 30);
  EXPECT_EQ(done, (std::vector<int64_t>{8, 16, 24, 30}));
}

// What a call asks for is of that call alone, and what the device does not do is as if it had not been asked for.
TEST_P(ContextTest, ARequestIsOfOneCall) {
  const std::vector<TokenId> prompt = tokens(12);
  Context context(model_, options_);
  const std::vector<double> expected = last_logits(context, prompt);
  const std::string digest = context.kv_digest();
  context.clear();
  EXPECT_THAT(refusal([&] { context.decode(prompt, 0, {.n_ranked = -1}); }), HasSubstr("-1 best logits"));
  EXPECT_EQ(context.n_past(), 0);
  EXPECT_EQ(context.n_ranked_max(), 0);
  EXPECT_FALSE(context.runs_ahead());
  int n_polls = 0;
  context.decode(std::span(prompt).first(11), 0,
                 {.cancelled = [&] { return ++n_polls > 100; }, .n_ranked = 3, .follows_best = true});
  EXPECT_TRUE(context.ranked().empty());
  EXPECT_EQ(n_polls, 1);
  EXPECT_EQ(last_logits(context, std::span(prompt).last(1)), expected);
  EXPECT_EQ(context.kv_digest(), digest);
  EXPECT_EQ(n_polls, 1);
}

TEST_P(ContextTest, SequencesDoNotSeeEachOther) {
  Context alone(model_, options_);
  const std::vector<TokenId> prompt = tokens(20);
  const std::vector<double> expected = last_logits(alone, prompt);
  options_.n_sequences = 3;
  Context context(model_, options_);
  context.decode(std::vector<TokenId>{5, 6, 7}, 1);
  context.decode(std::span(prompt).first(11), 0);
  context.decode(tokens(30), 2);
  context.decode(std::vector<TokenId>{8}, 1);
  EXPECT_EQ(last_logits(context, std::span(prompt).subspan(11)), expected);
  EXPECT_EQ(context.n_past(1), 4);
  EXPECT_EQ(context.n_past(2), 30);
  EXPECT_EQ(context.kv_digest(0), alone.kv_digest());
}

// A token's bits are those that it has alone, whatever runs beside it.
TEST_P(ContextTest, BatchesOfSequencesGiveTheBitsOfEachAlone) {
  constexpr int kSequences = 5;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<float>> expected;
  std::vector<std::string> digests;
  for (int i = 0; i < kSequences; ++i) {
    prompts.push_back(tokens(3 + 4 * i));
    prompts.back().front() = i;
    Context alone(model_, options_);
    alone.decode(prompts.back());
    expected.emplace_back(alone.logits().begin(), alone.logits().end());
    digests.push_back(alone.kv_digest());
  }
  options_.n_sequences = kSequences;
  Context context(model_, options_);
  std::vector<BatchToken> batch;  // everything but the last token of each, interleaved
  for (size_t at = 0; at < 20; ++at) {
    for (int i = 0; i < kSequences; ++i) {
      const std::vector<TokenId>& prompt = prompts[static_cast<size_t>(i)];
      if (at + 1 < prompt.size()) batch.push_back({prompt[at], i, false});
    }
  }
  context.decode_batch(batch);
  EXPECT_THAT(refusal([&] { (void)context.batch_logits(0); }), HasSubstr("batch logits"));
  batch.clear();
  for (int i = kSequences - 1; i >= 0; --i) batch.push_back({prompts[static_cast<size_t>(i)].back(), i, true});
  context.decode_batch(batch);
  for (int i = 0; i < kSequences; ++i) {
    const std::span<const float> found = context.batch_logits(kSequences - 1 - i);
    EXPECT_EQ(std::vector<float>(found.begin(), found.end()), expected[static_cast<size_t>(i)]) << "sequence " << i;
    EXPECT_EQ(context.kv_digest(i), digests[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(context.logits().data(), context.batch_logits(kSequences - 1).data());
}

TEST_P(ContextTest, RefusesBatchesBeforeAnyWork) {
  options_.n_sequences = 2;
  Context context(model_, options_);
  const auto batch = [&](std::vector<BatchToken> tokens) { return refusal([&] { context.decode_batch(tokens); }); };
  EXPECT_THAT(batch({}), HasSubstr("a batch of 0 tokens"));
  EXPECT_THAT(batch(std::vector<BatchToken>(200)), HasSubstr("1 to 128 tokens"));
  EXPECT_THAT(batch({{1, 2, true}}), HasSubstr("sequence: needs 0 to 1, found 2"));
  EXPECT_THAT(batch({{1, 0, true}, {96, 1, true}}), HasSubstr("token 1 of the prompt"));
  EXPECT_THAT(batch(std::vector<BatchToken>(65, {1, 1, false})), HasSubstr("65 tokens after 0 do not fit"));
  EXPECT_EQ(context.n_past(0), 0);
  EXPECT_EQ(context.n_past(1), 0);
}

// Observing never changes what runs, and sees every op of the plan once, in order.
TEST_P(ContextTest, ObserversSeeEveryOpAndChangeNothing) {
  struct Recorder final : ops::OpObserver {
    std::vector<std::string> names;
    bool wants(const ops::Op&) override { return true; }
    void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
      names.push_back(op.name);
      EXPECT_EQ(static_cast<int64_t>(values.size()), n_rows * width) << op.name;
    }
  };
  Context context(model_, options_);
  const std::vector<double> expected = last_logits(context, tokens(9));
  const std::string digest = context.kv_digest();
  context.clear();
  Recorder recorder;
  const engine::Watched watched(context.state(), recorder);
  EXPECT_EQ(last_logits(context, tokens(9)), expected);
  EXPECT_EQ(context.kv_digest(), digest);
  EXPECT_EQ(recorder.names.size(), 37u);
  EXPECT_EQ(recorder.names.front(), "token_embd");
  EXPECT_EQ(recorder.names.back(), "output");
}

TEST(ContextOptionNames, ReadBack) {
  for (const Numerics value : {Numerics::exact, Numerics::f32, Numerics::fast, Numerics::oracle})
    EXPECT_EQ(parse_numerics(name(value)), value);
  for (const KvType value : {KvType::f16, KvType::q8_0, KvType::f32}) EXPECT_EQ(parse_kv_type(name(value)), value);
  for (const Kernels value : all_kernels()) EXPECT_EQ(parse_kernels(name(value)), value);
  try {
    parse_kv_type("q4_0");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("f16, q8_0, f32, found \"q4_0\""));
  }
}

TEST(ContextOptionsTest, AModeChangesOneThing) {
  ContextOptions options;
  options.numerics = Numerics::f32;
  options.n_ctx = 77;
  options.backend = Backend::cuda;
  const auto exact8 = with_mode(options, "exact/8");
  ASSERT_TRUE(exact8);
  EXPECT_EQ(exact8->numerics, Numerics::exact);
  EXPECT_EQ(exact8->activation_bits, 8);
  EXPECT_EQ(exact8->n_ctx, 77);
  EXPECT_EQ(exact8->backend, Backend::cuda);
  EXPECT_EQ(with_mode(*exact8, "exact")->activation_bits, 15);
  EXPECT_EQ(with_mode(options, "oracle")->numerics, Numerics::oracle);
  EXPECT_EQ(with_mode(options, "oracle")->backend, Backend::cpu);  // it has no other
  EXPECT_EQ(with_mode(options, "fast")->numerics, Numerics::fast);
  EXPECT_EQ(with_mode(*with_mode(options, "avx2"), "fast")->backend, Backend::cuda);
  EXPECT_EQ(with_mode(*with_mode(options, "avx2"), "fast")->kernels, Kernels::best);
  EXPECT_EQ(with_mode(options, "avx2")->kernels, Kernels::avx2);
  EXPECT_EQ(with_mode(options, "avx2")->backend, Backend::cpu);
  EXPECT_EQ(with_mode(options, "avx2")->numerics, Numerics::f32);
  EXPECT_EQ(with_mode(*with_mode(options, "avx2"), "cuda")->kernels, Kernels::best);
  for (const char* none : {"", "auto", "exact/16", "F32", "model.gguf"}) EXPECT_FALSE(with_mode(options, none)) << none;
  std::stringstream names{std::string(kModeNames)};
  for (std::string text; std::getline(names >> std::ws, text, ',');) EXPECT_TRUE(with_mode(options, text)) << text;
}

}  // namespace
}  // namespace assay
