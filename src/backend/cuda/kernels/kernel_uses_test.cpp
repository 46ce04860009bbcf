// What `assay plan` prints of a GPU's kernels, without a card: every choice of the plan by name.
#include "backend/cuda/kernels/kernel_uses.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/cuda/schedule/schedule.h"
#include "support/tiny_plan.h"

namespace assay::backend::cuda {
namespace {

const Card kHopper = *find_card("h200"), kAmpere = *find_card("a100");

// "1..1 cuda a, 2.. cuda b"
std::string uses_of(const ops::Plan& plan, const ops::ExecutorOptions& options, std::string_view op,
                    const Card& card = kHopper) {
  const Schedule schedule = make_schedule(plan, options, card);
  const KernelPlan kernels(plan, options, schedule, card);
  std::string text;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (plan.ops[i].name != op) continue;
    for (const ops::KernelUse& use : kernel_uses(plan, schedule, kernels, static_cast<int32_t>(i))) {
      text += (text.empty() ? "" : ", ") + std::to_string(use.tokens_min) + "..";
      if (use.tokens_max != 0) text += std::to_string(use.tokens_max);
      text += " " + use.name;
    }
    break;
  }
  return text;
}

test::TinyShape shape_of(tensor::DType dtype) {
  test::TinyShape shape;
  shape.d_model = 256, shape.d_ff = 512, shape.head_dim = 64;
  shape.dtype = dtype;
  return shape;
}

TEST(CudaKernelUses, OfIntegers) {
  const test::TinyPlan tiny(shape_of(tensor::DType::Q4_K));
  const ops::ExecutorOptions options;
  EXPECT_EQ(uses_of(tiny.plan, options, "embed"), "1.. cuda embed, rows by eights");
  EXPECT_EQ(uses_of(tiny.plan, options, "attention"),
            "1..1 cuda decode attention of halves, "
            "2..8 cuda batch attention, merge with integers; from 9 segments of 256 on: merge, integers of rows, "
            "9.. cuda attention of Hopper, integers of rows; tokens of a sequence each: batch attention, merge with "
            "integers; from 9 segments of 256 on: merge, integers of rows");
  EXPECT_EQ(uses_of(tiny.plan, options, "attention_selected"),
            "1..1 cuda none: its readers do it, 2.. cuda select_outputs, integers of rows");
  EXPECT_EQ(
      uses_of(tiny.plan, options, "output"),
      "1..1 cuda decode superblocks, 2..16 cuda batch tiles, 17..32 cuda group tiles of wide batches, 64 columns, "
      "33..256 cuda group tiles of wide batches, 257.. cuda group tiles");
}

TEST(CudaKernelUses, OfDecodedRows) {
  ops::ExecutorOptions options;
  options.weights_as_f32 = true;
  EXPECT_EQ(uses_of(test::TinyPlan(shape_of(tensor::DType::Q4_K)).plan, options, "output"),
            "1..1 cuda floats, rows by blocks, 2..2 cuda float skinny, 2 tokens, rows by blocks, 3..4 cuda float "
            "skinny, 4 tokens, rows by blocks, 5..48 cuda float skinny, 8 tokens, rows by blocks, 49..4224 cuda "
            "float tiles, 16 tokens, rows by blocks, 4225.. cuda float tiles, rows by blocks");
  EXPECT_EQ(uses_of(test::TinyPlan(shape_of(tensor::DType::F16)).plan, options, "ffn_down"),
            "1..1 cuda decode floats, 2..2 cuda float skinny, 2 tokens, 3..4 cuda float skinny, 4 tokens, 5..48 "
            "cuda float skinny, 8 tokens, 49..2112 cuda float tiles, 16 tokens, 2113.. cuda float tiles");
  EXPECT_EQ(uses_of(test::TinyPlan(shape_of(tensor::DType::F16)).plan, options, "ffn_down", kAmpere),
            "1..1 cuda decode floats, 2..2 cuda float skinny, 2 tokens, 3..4 cuda float skinny, 4 tokens, 5.. cuda "
            "float skinny, 8 tokens");
}

TEST(CudaKernelUses, OfModeFast) {
  ops::ExecutorOptions options;
  options.fast = true;
  const test::TinyPlan halves(shape_of(tensor::DType::F16));
  EXPECT_EQ(uses_of(halves.plan, options, "ffn_gate"),
            "1..1 cuda decode halves, 2..8 cuda fast skinny, 8 tokens, 9..16 cuda fast skinny, 16 tokens, "
            "17..64 cuda fast skinny, 32 tokens, 65.. cuda fast tiles");
  EXPECT_EQ(uses_of(halves.plan, options, "ffn_gate", kAmpere),
            "1..1 cuda decode halves, short rings, 2..8 cuda fast skinny, 8 tokens, 9..16 cuda fast skinny, 16 "
            "tokens, 17.. cuda fast skinny, 32 tokens");
  options.halves = true;
  EXPECT_EQ(
      uses_of(test::TinyPlan(shape_of(tensor::DType::Q4_K)).plan, options, "ffn_gate"),
      "1..1 cuda fast skinny of blocks, one token, 2..8 cuda fast skinny of blocks, 8 tokens, 9..16 cuda fast skinny "
      "of blocks, 16 tokens, 17..64 cuda fast skinny of blocks, 32 tokens, 65.. cuda fast tiles of decoded rows, rows "
      "by eights");
}

}  // namespace
}  // namespace assay::backend::cuda
