#include "assay/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "assay/error.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

class BenchTestOnTiny : public ::testing::Test {
 protected:
  BenchTestOnTiny() {
    test::TinyLlamaWriter(test::TinyLlama{}).file().write(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string(), {.tokenizer = false});
    options_.n_threads = 2;
    options_.n_ctx = 32;
  }

  template <class Call>
  static std::string refusal(const Call& call) {
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

TEST_F(BenchTestOnTiny, RunsEverySequence) {
  options_.n_sequences = 3;
  Context context(model_, options_);
  Bench bench(context);
  const BenchResult result = bench.run({4, 2, 5, 3}, 2, true);
  EXPECT_EQ(result.samples_ns.size(), 2u);
  for (int sequence = 0; sequence < 3; ++sequence) EXPECT_EQ(context.n_past(sequence), 5 + 4 + 2);
  EXPECT_NEAR(result.samples_ts[0], 3 * (4 + 2) * 1e9 / static_cast<double>(result.samples_ns[0]),
              1e-6 * result.samples_ts[0]);
  EXPECT_THAT(refusal([&] { bench.run({4, 2, 5, 4}, 1, false); }), HasSubstr("4 sequences: the context holds 3"));
  EXPECT_THAT(refusal([&] { bench.run({30, 2, 5, 1}, 1, false); }), HasSubstr("n_ctx"));
  EXPECT_THAT(refusal([&] { bench.run({INT64_MAX, INT64_MAX, 5, 1}, 1, false); }), HasSubstr("n_ctx"));
  EXPECT_THAT(refusal([&] { bench.run({0, 0, 5, 1}, 1, false); }), HasSubstr("at least one token"));
  EXPECT_THAT(refusal([&] { bench.run({4, 0, 0, 1}, 0, false); }), HasSubstr("0 repetitions"));
}

// Whatever ran before: the positions of a depth hold the same tokens.
TEST_F(BenchTestOnTiny, KeepsADepthForTheNextTest) {
  options_.n_sequences = 2;
  const auto digests = [&](const std::vector<BenchTest>& tests) {
    Context context(model_, options_);
    Bench bench(context);
    for (const BenchTest& test : tests) bench.run(test, 1, true);
    return std::pair(context.kv_digest(0), context.kv_digest(1));
  };
  const BenchTest last{2, 1, 9, 2};
  const auto alone = digests({last});
  EXPECT_EQ(digests({{3, 0, 9, 2}, last}), alone);
  EXPECT_EQ(digests({{3, 0, 4, 1}, last}), alone);
  EXPECT_EQ(digests({{3, 2, 12, 2}, {1, 1, 0, 1}, last}), alone);
  EXPECT_NE(digests({{2, 1, 8, 2}}), alone);
}

TEST_F(BenchTestOnTiny, StopsWhereItIsCancelled) {
  Context context(model_, options_);
  Bench bench(context);
  EXPECT_TRUE(bench.run({4, 2, 5, 1}, 2, true, [] { return true; }).samples_ns.empty());
  EXPECT_EQ(bench.run({4, 2, 5, 1}, 2, true).samples_ns.size(), 2u);
}

TEST_F(BenchTestOnTiny, CountsTheWorkOfATest) {
  options_.n_ubatch = 8;
  options_.n_sequences = 2;
  Context context(model_, options_);
  Bench bench(context);
  const Work one = bench.run({0, 1, 0, 1}, 1, false).work;
  // Everything but the embedding, of which one row is read, the keys and the values of one position (f16); all in f32.
  const int64_t embedding = model_->vocab_size() * model_->d_model() * 4;
  const int64_t cache = model_->n_layers() * 2 * test::TinyLlama{}.n_kv_heads * test::TinyLlama{}.head_dim * 2;
  EXPECT_EQ(one.bytes, model_->weights_bytes() - embedding + model_->d_model() * 4 + cache);
  EXPECT_EQ(one.byte_products, 0);
  EXPECT_EQ(one.float_multiply_adds, one.multiply_adds);
  const Work two = bench.run({0, 1, 0, 2}, 1, false).work;
  EXPECT_EQ(two.multiply_adds, 2 * one.multiply_adds);
  EXPECT_EQ(two.bytes, one.bytes + model_->d_model() * 4 + cache);  // the weights once for both
  // Chunks of 8, 8 and 4 read the weights three times, the head once.
  const Work prompt = bench.run({20, 0, 0, 1}, 1, false).work;
  EXPECT_GT(prompt.bytes, 2 * one.bytes);
  EXPECT_LT(prompt.bytes, 3 * one.bytes + 60 * cache + 20 * model_->d_model() * 4);
  EXPECT_LT(prompt.multiply_adds, 20 * one.multiply_adds + 20 * 20 * cache);
  EXPECT_EQ(bench.run({0, 1, 7, 1}, 1, false).work.bytes, one.bytes + 7 * cache);
}

TEST_F(BenchTestOnTiny, SharesAreOfTheLimits) {
  MachineLimits limits;
  const Work work{600, 300, 200, 100};
  EXPECT_EQ(share_of_bandwidth(work, 2, limits), 0);
  EXPECT_EQ(share_of_peak(work, 2, limits), 0);
  limits.read_bandwidth = 1000;
  limits.byte_products = 400;
  limits.float_multiply_adds = 50;
  EXPECT_DOUBLE_EQ(share_of_bandwidth(work, 2, limits), 0.3);
  EXPECT_DOUBLE_EQ(share_of_peak(work, 5, limits), (0.5 + 2) / 5);
  EXPECT_EQ(share_of_peak(work, 0, limits), 0);
}

TEST_F(BenchTestOnTiny, LimitsAreOfTheKernelsThatRun) {
  const MachineLimits best = measure_limits(Context(model_, options_));
  EXPECT_GT(best.read_bandwidth, 0);
  options_.kernels = Kernels::reference;
  const MachineLimits reference = measure_limits(Context(model_, options_));
  EXPECT_EQ(reference.byte_products, 0);
  EXPECT_EQ(reference.byte_instructions, "");
  if (Context(model_, {.n_ctx = 8}).kernels() == "reference") return;
  EXPECT_GT(best.byte_products, best.float_multiply_adds);
  EXPECT_GT(best.float_multiply_adds, 0);
  EXPECT_NE(best.byte_instructions, "");
}

TEST_F(BenchTestOnTiny, ProfileCountsWork) {
  Context context(model_, options_);
  const Profile p = profile(context, 6, 10, 3);
  EXPECT_EQ(context.n_past(), 16);
  int64_t bytes = 0, n_steps = 0;
  double seconds = 0;
  for (const ProfileRow& row : p.rows) {
    bytes += row.ops == "attention" ? 0 : row.work.bytes;
    n_steps += row.n_steps;
    seconds += row.seconds;
    EXPECT_GT(row.seconds, 0) << row.ops;
  }
  EXPECT_DOUBLE_EQ(p.seconds, seconds);
  EXPECT_GT(p.untimed_seconds, 0);
  EXPECT_TRUE(
      std::is_sorted(p.rows.begin(), p.rows.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; }));
  const auto qkv = std::find_if(p.rows.begin(), p.rows.end(),
                                [](const ProfileRow& r) { return r.ops == "attn_q + attn_k + attn_v"; });
  ASSERT_NE(qkv, p.rows.end());
  EXPECT_EQ(qkv->n_steps, model_->n_layers());
  EXPECT_EQ(qkv->work.multiply_adds * 4, qkv->work.bytes * 6);  // f32 weights, 6 tokens
  const int64_t table = model_->vocab_size() * model_->d_model() * 4;
  EXPECT_EQ(bytes, model_->weights_bytes() - table + 6 * model_->d_model() * 4);
  EXPECT_GE(n_steps, 5 * model_->n_layers());
  EXPECT_THAT(refusal([&] { profile(context, 33, 0, 1); }), HasSubstr("-ub"));
  EXPECT_THAT(refusal([&] { profile(context, 6, 27, 1); }), HasSubstr("-c"));
}

TEST_F(BenchTestOnTiny, ProfileNeedsSteps) {
  options_.numerics = Numerics::oracle;
  Context context(model_, options_);
  EXPECT_THAT(refusal([&] { profile(context, 1, 0, 1); }), HasSubstr("cannot tell its steps apart"));
}

// Weights are looked at by the first token and not before: most of the file's map has no page of this process after
// loading.
TEST(BenchStart, LoadingLeavesTheWeightsAlone) {
  const std::string path = test::smollm2().string();
  ASSAY_REQUIRE_FILE(path);
  const auto model = Model::load(path);
  std::ifstream maps("/proc/self/smaps");
  int64_t size_kib = 0, resident_kib = 0, kib = 0;
  bool of_file = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (!key.ends_with(':')) of_file = line.find(path) != std::string::npos;
    if (!of_file || !(words >> kib)) continue;
    if (key == "Size:") size_kib += kib;
    if (key == "Rss:") resident_kib += kib;
  }
  EXPECT_GE(size_kib, static_cast<int64_t>(model->file_bytes() / 1024));
  EXPECT_LT(resident_kib, size_kib / 8);
}

TEST(BenchStart, TimesEveryPart) {
  const std::string path = test::shared("goldens/tiny/llama.gguf").string();
  ASSAY_REQUIRE_FILE(path);
  const std::vector<StartTiming> start = measure_start(path, {.n_ctx = 32, .n_threads = 1}, 3);
  ASSERT_EQ(start.size(), 3u);
  for (const StartTiming& timing : start) {
    for (const double ms : {timing.load.open_ms, timing.load.plan_ms, timing.load.vocabulary_ms, timing.context_ms,
                            timing.first_token_ms}) {
      EXPECT_GT(ms, 0);
    }
    EXPECT_DOUBLE_EQ(timing.total_ms(), timing.load.open_ms + timing.load.plan_ms + timing.load.vocabulary_ms +
                                            timing.load.template_ms + timing.context_ms + timing.first_token_ms);
  }
  EXPECT_TRUE(measure_start(path, {}, 3, [] { return true; }).empty());
}

}  // namespace
}  // namespace assay
