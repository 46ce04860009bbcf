// What the plan of kernels says to groups of ops, without a card.
#include "backend/cuda/kernels/kernel_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/cuda/schedule/schedule.h"
#include "support/tiny_plan.h"

namespace assay::backend::cuda {
namespace {

const Card kHopper = *find_card("h200");

// "op finds value type" of every group that is left a rounded value; op: its first.
std::vector<std::string> found_by(const ops::Plan& plan, const ops::ExecutorOptions& options) {
  const Schedule schedule = make_schedule(plan, options, kHopper);
  const KernelPlan kernels(plan, options, schedule, kHopper);
  const auto name_of = [&](int32_t op) { return plan.ops[static_cast<size_t>(op)].name; };
  std::vector<std::string> texts;
  std::string left;
  for (const lower::FusionGroup& group : schedule.groups) {
    std::string found;
    if (!group.ops.empty()) {
      const KernelPlan::Halves& halves = kernels.halves_found(group);
      if (halves.x != ops::kNone) {
        EXPECT_EQ(halves.reader, group.ops.front());
        found = plan.values[static_cast<size_t>(halves.x)].name + " " + std::string(tensor::traits(halves.type).name);
        texts.push_back(name_of(halves.reader) + " finds " + found);
      }
    }
    EXPECT_EQ(found, left) << "what a group finds is what the one before it leaves";
    left.clear();
    if (group.ops.empty()) continue;
    const KernelPlan::Halves& halves = kernels.halves_left(group);
    if (halves.x != ops::kNone)
      left = plan.values[static_cast<size_t>(halves.x)].name + " " + std::string(tensor::traits(halves.type).name);
  }
  EXPECT_EQ(left, "") << "the last group leaves a value to nobody";
  return texts;
}

TEST(CudaKernelPlan, GroupsFindRoundedValuesOfNormsAndGates) {
  test::TinyShape shape;
  shape.d_model = 256, shape.d_ff = 512, shape.head_dim = 64;
  shape.dtype = tensor::DType::F16;
  const test::TinyPlan tiny(shape);
  ops::ExecutorOptions options;
  EXPECT_EQ(found_by(tiny.plan, options), std::vector<std::string>{}) << "exact modes round nothing";
  options.fast = true;
  const std::vector<std::string> by = {"attn_q finds attn_norm F16",  "ffn_gate finds ffn_norm F16",
                                       "ffn_down finds ffn_act F16",  "attn_q finds attn_norm F16",
                                       "ffn_gate finds ffn_norm F16", "ffn_down finds ffn_act F16",
                                       "output finds output_norm F16"};
  EXPECT_EQ(found_by(tiny.plan, options), by) << "attn_output finds none: attention leaves floats";
}

}  // namespace
}  // namespace assay::backend::cuda
