#include "assay/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "assay/error.h"
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
  const BenchResult result = run_bench(context, {4, 2, 5, 3}, 2, true);
  EXPECT_EQ(result.samples_ns.size(), 2u);
  for (int sequence = 0; sequence < 3; ++sequence) EXPECT_EQ(context.n_past(sequence), 5 + 4 + 2);
  EXPECT_NEAR(result.samples_ts[0], 3 * (4 + 2) * 1e9 / static_cast<double>(result.samples_ns[0]), 1e-6 * result.samples_ts[0]);
  EXPECT_THAT(refusal([&] { run_bench(context, {4, 2, 5, 4}, 1, false); }), HasSubstr("4 sequences: the context holds 3"));
  EXPECT_THAT(refusal([&] { run_bench(context, {30, 2, 5, 1}, 1, false); }), HasSubstr("-c"));
}

TEST_F(BenchTestOnTiny, ProfileCountsWork) {
  Context context(model_, options_);
  const Profile p = profile(context, 6, 10, 3);
  EXPECT_EQ(context.n_past(), 16);
  int64_t bytes = 0, n_steps = 0;
  double seconds = 0;
  for (const ProfileRow& row : p.rows) {
    bytes += row.ops == "attention" ? 0 : row.bytes;
    n_steps += row.n_steps;
    seconds += row.seconds;
    EXPECT_GT(row.seconds, 0) << row.ops;
  }
  EXPECT_DOUBLE_EQ(p.seconds, seconds);
  EXPECT_TRUE(std::is_sorted(p.rows.begin(), p.rows.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; }));
  const auto qkv = std::find_if(p.rows.begin(), p.rows.end(), [](const ProfileRow& r) { return r.ops == "attn_q + attn_k + attn_v"; });
  ASSERT_NE(qkv, p.rows.end());
  EXPECT_EQ(qkv->n_steps, model_->n_layers());
  EXPECT_EQ(qkv->multiply_adds * 4, qkv->bytes * 6);  // f32 weights, 6 tokens
  EXPECT_LT(bytes, model_->weights_bytes());          // norms and the embedding are not multiplied
  EXPECT_GT(bytes, model_->weights_bytes() / 2);
  EXPECT_GE(n_steps, 5 * model_->n_layers());
  EXPECT_THAT(refusal([&] { profile(context, 33, 0, 1); }), HasSubstr("-ub"));
  EXPECT_THAT(refusal([&] { profile(context, 6, 27, 1); }), HasSubstr("-c"));
}

TEST_F(BenchTestOnTiny, ProfileNeedsSteps) {
  options_.numerics = Numerics::oracle;
  Context context(model_, options_);
  EXPECT_THAT(refusal([&] { profile(context, 1, 0, 1); }), HasSubstr("cannot tell its steps apart"));
}

}  // namespace
}  // namespace assay
