// Types chosen for a size, on a tiny model: the size holds, quantize() makes the file of it, and what was said of one
// tensor is what a run shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "assay/error.h"
#include "assay/perplexity.h"
#include "assay/quantize_target.h"
#include "gguf/file.h"
#include "support/invariance.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include "target/divergence.h"

namespace assay {
namespace {

using testing::HasSubstr;

class TargetTest : public testing::Test {
 protected:
  TargetTest() {
    test::TinyLlama spec;
    spec.n_layers = 2;
    spec.d_ff = 256;
    test::TinyLlamaWriter(spec).file().write(in());
    ids_ = test::random_tokens(40, 96);
    options_.quantize.n_threads = 1;
  }
  std::filesystem::path in() const { return folder_ / "in.gguf"; }
  std::string refusal() {
    try {
      choose_types(in(), ids_, options_);
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::bad_request) << e.what();
      return e.what();
    }
    return "nothing was thrown";
  }

  test::TempFolder folder_;
  std::vector<TokenId> ids_;
  TargetOptions options_;
};

TEST_F(TargetTest, TheFileIsOfTheSizeAndItsRulesMakeIt) {
  options_.bytes_max = 700'000;
  const TargetChoice choice = choose_types(in(), ids_, options_);
  EXPECT_LE(choice.bytes, options_.bytes_max);
  EXPECT_GT(choice.bytes, options_.bytes_max * 9 / 10);
  QuantizeOptions options;
  options.type = choice.type;
  options.tensor_types = choice.rules();
  options.n_threads = 1;
  quantize(in(), folder_ / "out.gguf", options);
  EXPECT_LE(std::filesystem::file_size(folder_ / "out.gguf"), choice.bytes);
  const gguf::File file = gguf::File::open(folder_ / "out.gguf");
  for (const TargetTensor& t : choice.tensors)
    EXPECT_EQ(tensor::traits(file.find(t.name)->view.dtype).name, t.type) << t.name;
  EXPECT_EQ(choice.tensors.size(), 16u);
}

TEST_F(TargetTest, MoreBytesCostLess) {
  double before = std::numeric_limits<double>::infinity();
  for (const double bits : {3.6, 4.5, 6.0, 8.5}) {
    options_.bits_per_weight = bits;
    const TargetChoice choice = choose_types(in(), ids_, options_);
    EXPECT_LE(choice.bits_per_weight, bits);
    EXPECT_GT(choice.bits_per_weight, bits - 0.8);
    EXPECT_LT(choice.kl_divergence, before);
    before = choice.kl_divergence;
  }
}

TEST_F(TargetTest, ADivergenceIsThatOfTheFileWithThisTensorAlone) {
  QuantizeOptions options;
  options.type = "Q4_K_S";
  options.n_threads = 1;
  for (const QuantizedTensor& t : plan_quantize(in(), options).tensors) {
    if (t.name != "blk.1.ffn_down.weight" && t.type != t.source_type) options.tensor_types.emplace_back(t.name, "F32");
  }
  options.tensor_types.emplace_back("blk\\.1\\.ffn_down", "Q3_K");
  quantize(in(), folder_ / "out.gguf", options);
  const auto model = Model::load(in().string(), {.tokenizer = false});
  const auto changed = Model::load((folder_ / "out.gguf").string(), {.tokenizer = false});
  base::ThreadPool pool(1);
  const gguf::File file = gguf::File::open(folder_ / "out.gguf");
  const tensor::TensorView& view = file.find("blk.1.ffn_down.weight")->view;
  ASSERT_EQ(view.dtype, tensor::DType::Q3_K);
  const double found = target::Divergence(model, ids_, pool).with("blk.1.ffn_down.weight", view.dtype, view.data);
  // The same by perplexity(): chunks of all tokens, of whose second half the divergence is told token by token.
  const double itself = target::Divergence(changed, ids_, pool).with("blk.1.ffn_down.weight", view.dtype, view.data);
  EXPECT_GT(found, 1e-6);
  EXPECT_EQ(itself, 0);
  ContextOptions context_options;
  context_options.n_ctx = 64;
  context_options.n_threads = 1;
  Context a(changed, context_options), b(model, context_options);
  std::vector<TokenId> twice = ids_;
  twice.insert(twice.end(), ids_.begin(), ids_.end());
  PerplexityOptions perplexity_options;
  perplexity_options.n_chunk = static_cast<int64_t>(ids_.size());
  perplexity_options.keep_tokens = true;
  const PerplexityResult r = perplexity(a, &b, twice, perplexity_options);
  EXPECT_GT(found, 0.3 * r.kl_divergence.mean);  // of the same text, but other positions
  EXPECT_LT(found, 3 * r.kl_divergence.mean);
}

TEST_F(TargetTest, FixedTypesStay) {
  options_.bits_per_weight = 5;
  options_.quantize.tensor_types = {{"attn_v", "q8_0"}};
  options_.quantize.token_embedding_type = "F16";
  const TargetChoice choice = choose_types(in(), ids_, options_);
  EXPECT_EQ(choice.tensors.size(), 13u);
  for (const TargetTensor& t : choice.tensors) EXPECT_THAT(t.name, testing::Not(HasSubstr("attn_v")));
  EXPECT_LE(choice.bits_per_weight, 5);
}

TEST_F(TargetTest, Refusals) {
  EXPECT_THAT(refusal(), HasSubstr("one of them is needed"));
  options_.bytes_max = 1000;
  EXPECT_THAT(refusal(), HasSubstr("the smallest types there are without an importance matrix make"));
  ids_.resize(15);
  EXPECT_THAT(refusal(), HasSubstr("the text has 15 tokens; 16 are needed"));
}

}  // namespace
}  // namespace assay
