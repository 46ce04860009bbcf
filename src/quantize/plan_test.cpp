// Plans over files: the source's facts, pruned blocks, quantised sources, the user's expressions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/error.h"
#include "assay/quantize.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using tensor::DType;
using testing::HasSubstr;

class PlanTest : public testing::Test {
 protected:
  // A llama of 4 layers, 8 heads a key head, so that its v are kept well.
  std::filesystem::path write(DType dtype, bool tied = false, uint32_t n_layers = 4) {
    test::TinyLlama spec;
    spec.dtype = dtype;
    spec.n_layers = n_layers;
    spec.tied = tied;
    spec.n_kv_heads = 1;
    test::TinyLlamaWriter(spec).file().write(folder_ / "in.gguf");
    return folder_ / "in.gguf";
  }
  static QuantizeOptions to(const std::string& type) {
    QuantizeOptions options;
    options.type = type;
    return options;
  }
  static const QuantizedTensor& named(const QuantizePlan& plan, const std::string& name) {
    for (const QuantizedTensor& t : plan.tensors) {
      if (t.name == name) return t;
    }
    throw std::runtime_error("no tensor " + name);
  }
  template <class F>
  static std::string refusal(F f, Errc code = Errc::bad_request) {
    try {
      f();
    } catch (const Error& e) {
      EXPECT_EQ(e.code, code) << e.what();
      return e.what();
    }
    ADD_FAILURE() << "was not refused";
    return "";
  }
  test::TempFolder folder_;
};

TEST_F(PlanTest, CountsBytesAndReadsTheHeads) {
  const QuantizePlan plan = plan_quantize(write(DType::F16), to("IQ4_NL"));
  EXPECT_EQ(plan.type, "IQ4_NL");
  EXPECT_EQ(named(plan, "blk.0.attn_v.weight").type, "Q5_K");  // 4 query heads a key head
  const QuantizedTensor& up = named(plan, "blk.3.ffn_up.weight");
  EXPECT_EQ(up.type, "IQ4_NL");
  EXPECT_EQ(up.source_type, "F16");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{512, 256}));
  EXPECT_EQ(up.source_bytes, 512u * 256 * 2);
  EXPECT_EQ(up.bytes, 512u * 256 / 32 * 18);
  EXPECT_EQ(named(plan, "output_norm.weight").bytes, 256u * 4);
  EXPECT_EQ(plan.tensors.front().name, "output.weight");
  EXPECT_EQ(plan.tensors.back().name, "blk.3.ffn_up.weight");
  uint64_t bytes = 0;
  for (const QuantizedTensor& t : plan.tensors) bytes += t.bytes;
  EXPECT_EQ(plan.bytes, bytes);
  EXPECT_DOUBLE_EQ(plan.bits_per_weight(), 8.0 * static_cast<double>(bytes) / static_cast<double>(plan.n_elements));
}

TEST_F(PlanTest, BlocksLeftOutMoveTheOthersUp) {
  QuantizeOptions options = to("Q8_0");
  options.prune_layers = {1, 2};
  const QuantizePlan plan = plan_quantize(write(DType::F32), options);
  EXPECT_EQ(named(plan, "blk.0.ffn_up.weight").source_name, "blk.0.ffn_up.weight");
  EXPECT_EQ(named(plan, "blk.1.ffn_up.weight").source_name, "blk.3.ffn_up.weight");
  EXPECT_EQ(plan.tensors.back().name, "blk.1.ffn_up.weight");
  options.prune_layers = {4};
  EXPECT_THAT(refusal([&] { plan_quantize(folder_ / "in.gguf", options); }),
              HasSubstr("block 4 cannot be left out: the model has blocks 0 to 3"));
}

TEST_F(PlanTest, AQuantisedSourceNeedsLeave) {
  const auto in = write(DType::Q4_0);
  QuantizeOptions options = to("Q8_0");
  EXPECT_THAT(refusal([&] { plan_quantize(in, options); }),
              testing::AllOf(HasSubstr("--allow-requantize"), HasSubstr("is Q4_0 already")));
  options.allow_requantize = true;
  EXPECT_EQ(plan_quantize(in, options).requantized, "Q4_0");
  // What keeps its type keeps its bytes: nothing is quantised twice.
  EXPECT_FALSE(plan_quantize(in, to("COPY")).requantized);
  QuantizeOptions pure = to("Q4_0");
  pure.pure = true;
  EXPECT_FALSE(plan_quantize(in, pure).requantized);
}

TEST_F(PlanTest, TheFirstExpressionThatMatchesCounts) {
  QuantizeOptions options = to("Q4_0");
  options.tensor_types = {{"BLK\\.0\\.ffn_(up|gate)", "q8_0"}, {"ffn_up", "F16"}};
  const QuantizePlan plan = plan_quantize(write(DType::F32), options);
  EXPECT_EQ(named(plan, "blk.0.ffn_up.weight").type, "Q8_0");
  EXPECT_EQ(named(plan, "blk.1.ffn_up.weight").type, "F16");
  EXPECT_EQ(named(plan, "blk.1.ffn_gate.weight").type, "Q4_0");
}

TEST_F(PlanTest, BadExpressionsAndTypesAreNamed) {
  const auto in = write(DType::F32);
  QuantizeOptions options = to("Q4_0");
  options.tensor_types = {{"ffn_(up", "Q8_0"}};
  EXPECT_THAT(refusal([&] { plan_quantize(in, options); }), HasSubstr("'ffn_(up' is no regular expression"));
  options.tensor_types = {{"ffn_up", "Q9_0"}};
  EXPECT_THAT(refusal([&] { plan_quantize(in, options); }), testing::AllOf(HasSubstr("'Q9_0'"), HasSubstr("IQ4_XS")));
  options.tensor_types = {{"(.+)+(.+)+(.+)+(.+)+[0-9]$", "Q8_0"}};
  EXPECT_THAT(refusal([&] { plan_quantize(in, options); }), HasSubstr("cannot be held against"));
  EXPECT_THAT(refusal([&] { plan_quantize(in, to("Q4")); }), HasSubstr("there is no type 'Q4'"));
}

TEST_F(PlanTest, FallbacksAreCounted) {
  test::TinyLlama spec;
  spec.d_model = 96;
  spec.head_dim = 24;
  test::TinyLlamaWriter(spec).file().write(folder_ / "in.gguf");
  const QuantizePlan plan = plan_quantize(folder_ / "in.gguf", to("Q4_K_S"));
  EXPECT_EQ(named(plan, "blk.0.attn_q.weight").type, "Q5_0");
  EXPECT_EQ(named(plan, "blk.0.attn_q.weight").wanted, "Q4_K");
  EXPECT_EQ(named(plan, "blk.0.ffn_down.weight").wanted, "");  // 512 columns
  EXPECT_EQ(plan.n_fallbacks(), 1 + 2 * 6);                    // the head gets Q8_0 by rule
}

TEST_F(PlanTest, AFileWithoutItsFactsIsRefused) {
  test::TinyLlama spec;
  spec.without = {"block_count"};
  test::TinyLlamaWriter(spec).file().write(folder_ / "in.gguf");
  EXPECT_THAT(refusal([&] { plan_quantize(folder_ / "in.gguf", to("Q4_0")); }, Errc::bad_file),
              HasSubstr("llama.block_count"));
}

}  // namespace
}  // namespace assay
