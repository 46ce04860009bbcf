// Slices and joins on the CPU: with values that lie in others' memory and with copies a run has the same bits, op by op,
// by every kernel set and number of threads; and which of a family's values these are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "assay/model.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "engine/model_state.h"
#include "ops/attention/rope.h"
#include "ops/linear/linear.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/l2_norm.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/slice.h"
#include "support/engine/executor_runs.h"
#include "support/shared_data.h"
#include "support/tiny_plan.h"

namespace assay::engine {
namespace {

struct Family {
  const char* name;
  std::vector<std::string> places;
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

// Of phi3 to starcoder2 fused products are cut by rows of their weights: they have no slices.
std::vector<Family> families() {
  return {
      {"phi3", {}},
      {"glm4", {}},
      {"gptneox", {}},
      {"gpt2", {}},
      {"starcoder2", {}},
      {"deepseek2",
       {"attn_q_nope: view of attn_q_b", "attn_q_pe: view of attn_q_b", "attn_q_all: attn_k_b, attn_q_rope in place",
        "attn_k_all: attn_kv_a_norm, attn_k_rope in place"}},
      {"deepseek32",
       {"attn_q_nope: view of attn_q_b", "attn_q_pe: view of attn_q_b", "attn_q_all: attn_k_b, attn_q_rope in place",
        "attn_k_all: attn_kv_a_norm, attn_k_rope in place"}},
      {"kimilinear",
       {"attn_q_nope: view of attn_q", "attn_q_pe: copied", "attn_q_all: attn_k_b, attn_q_pe in place",
        "attn_k_all: attn_kv_a_norm, attn_k_pe in place"}},
      {"bailing3",
       {"attn_q_nope: view of attn_q", "attn_q_pe: view of attn_q", "attn_q_all: attn_k_b, attn_q_rope in place",
        "attn_k_all: attn_kv_a_norm, attn_k_rope in place"}},
      {"minimaxm3",
       {"attn_q_of_#: view of attn_q_rope", "attn_k_of_#: view of attn_k_rope", "attn_v_of_#: view of attn_v",
        "indexer.q_of_#: view of indexer.q_rope", "attention_up_to_#: attention_#, attention_# in place"}},
      {"gemma3n",
       {"altup_predict_#_#_coef: view of altup_predict_coef", "inp_layer: view of per_layer_inputs",
        "altup_correct_#_coef: view of altup_correct_coef"}},
      {"gemma4-e", {"inp_layer: view of per_layer_inputs"}},
      {"granitehybrid",
       {"ssm_x: view of ssm_conv1d_act", "ssm_b: view of ssm_conv1d_act", "ssm_c: view of ssm_conv1d_act"}},
      {"falconh1", {"ssm_x: view of ssm_conv1d_act", "ssm_b: view of ssm_conv1d_act", "ssm_c: view of ssm_conv1d_act"}},
      {"mamba2", {"ssm_x: view of ssm_conv1d_act", "ssm_b: view of ssm_conv1d_act", "ssm_c: view of ssm_conv1d_act"}},
      {"nemotronh",
       {"ssm_x: view of ssm_conv1d_act", "ssm_b: view of ssm_conv1d_act", "ssm_c: view of ssm_conv1d_act"}},
      {"qwen35",
       {"ssm_q: view of ssm_conv1d_act", "ssm_k: view of ssm_conv1d_act", "ssm_v: view of ssm_conv1d_act",
        "attn_q_heads: view of attn_q", "attn_q_gate: view of attn_q"}},
      {"qwen3next",
       {"ssm_alpha: copied", "ssm_beta: copied", "ssm_q: view of ssm_conv1d_act", "ssm_k: view of ssm_conv1d_act",
        "ssm_v: view of ssm_conv1d_act", "attn_q_heads: view of attn_q", "attn_q_gate: view of attn_q"}},
      {"qwen4exp",
       {"streams_#: copied", "streams_#: streams_# in place", "hc_attn_stream_#: view of hc_attn_gated",
        "ssm_q: view of ssm_conv1d_act", "ssm_k: view of ssm_conv1d_act", "ssm_v: view of ssm_conv1d_act",
        "hc_attn_block_#: copied", "hc_attn_block_#: hc_attn_block_# in place",
        "hc_attn_block_#: hc_attn_block_#, ssm_out in place", "hc_ffn_stream_#: view of hc_ffn_gated",
        "hc_ffn_block_#: copied", "hc_ffn_block_#: hc_ffn_block_# in place",
        "hc_ffn_block_#: hc_ffn_block_#, ffn_all in place", "attn_q_heads: view of attn_q",
        "attn_q_gate: view of attn_q", "hc_attn_block_#: hc_attn_block_#, attn_output in place",
        "output_hc_stream_#: view of output_hc_gated"}},
  };
}

std::string file_of(const Family& family) {
  return test::shared("goldens/arch/" + std::string(family.name) + ".gguf").string();
}

class ViewsOf : public ::testing::TestWithParam<Family> {};

// "op: where it lies" of slices and joins in the order of the plan, each once; numbers in names are #.
std::vector<std::string> places_of(const ops::Plan& plan, const ops::Executor& executor) {
  static const std::regex layer("blk\\.[0-9]+\\."), number("_[0-9]+");
  std::vector<std::string> places;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const ops::Op& op = plan.ops[i];
    if (!op.is<ops::Slice>() && !op.is<ops::Join>()) continue;
    const std::string use = executor.kernels_of(static_cast<int32_t>(i)).at(0).name;
    const bool is_copied = use == name(backend::cpu::best_kernel_set());
    std::string place = op.name + ": " + (is_copied ? "copied" : use);
    place = std::regex_replace(std::regex_replace(place, layer, ""), number, "_#");
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  }
  return places;
}

// Every op's rows, all logits and the cache.
test::Seen seen(const ops::Plan& plan, bool as_f32, const backend::cpu::CpuOptions& cpu, int n_threads) {
  base::ThreadPool pool(n_threads);
  return test::run_all(
      *backend::cpu::make_cpu_executor(plan, test::options_of(ops::CacheType::f16, as_f32, 2), cpu, pool), true);
}

void expect_no_bit_changed(const ops::Plan& plan) {
  for (const bool as_f32 : {false, true}) {
    const test::Seen copied = seen(plan, as_f32, {.kernels = Kernels::reference, .with_views = false}, 1);
    ASSERT_FALSE(copied.values.empty());
    for (const Kernels set : backend::cpu::kernel_sets())
      EXPECT_TRUE(seen(plan, as_f32, {.kernels = set}, as_f32 ? 1 : 3) == copied) << name(set);
  }
}

std::vector<std::string> places_of(const ops::Plan& plan) {
  base::ThreadPool pool(1);
  return places_of(plan,
                   *backend::cpu::make_cpu_executor(plan, test::options_of(ops::CacheType::f16, false, 2), {}, pool));
}

TEST_P(ViewsOf, AreTheseAndChangeNoBit) {
  ASSAY_REQUIRE_FILE(file_of(GetParam()));
  const auto model = Model::load(file_of(GetParam()), {.tokenizer = false});
  const ops::Plan& plan = model->state().built.plan;
  EXPECT_EQ(places_of(plan), GetParam().places);
  expect_no_bit_changed(plan);
}

INSTANTIATE_TEST_SUITE_P(Families, ViewsOf, ::testing::ValuesIn(families()), [](const auto& parameters) {
  std::string text = parameters.param.name;
  std::ranges::replace(text, '-', '_');
  return text;
});

// Between the first gate of a small decoder and its product: three heads of 64 columns cut, by every kernel that takes
// runs, and joined again.
class RunsPlan {
 public:
  RunsPlan() {
    while (!plan().ops[at_].is<ops::Gate>()) ++at_;
    x_ = plan().ops[at_].get<ops::Gate>().y;
    const ops::ValueId cut = slice("cut", 0), other = slice("other", kHead), norm = value("norm"),
                       layer = value("layer"), unit = value("unit"), turned = value("turned"), gated = value("gated"),
                       sum = value("sum"), clamped = value("clamped"), act = value("act"), one = value("one", kHead);
    add("norm", ops::RmsNorm{cut, ops::kNone, 1e-5f, kHead, norm});
    add("layer", ops::LayerNorm{cut, ops::kNone, ops::kNone, 1e-5f, kHead, layer});
    add("unit", ops::L2Norm{other, 1e-6f, kHead, unit});
    add("turned", ops::Rope{cut, 0, kHeads, kHead, turned});
    add("gated", ops::Gate{other, turned, ops::ActivationFunction::silu, gated});
    add("sum", ops::Add{cut, unit, sum});
    add("clamped", ops::ClampedGate{sum, other, 1.7, 7, clamped});
    add("act", ops::Activate{cut, ops::ActivationFunction::gelu_erf, act});
    add("one", ops::Slice{act, 1, kHead, one});
    const ops::ValueId narrow = join("narrow", layer, one, kHead), wide = join("wide", gated, norm, kHead),
                       more = join("more", clamped, act, kHead), all = value("all", 2 * kHeads * kHead);
    add("all", ops::Add{wide, more, all});
    const ops::ValueId y = value("y", 2 * kHeads * kHead);
    add("y", ops::Add{all, narrow, y});
    for (size_t i = at_ + 1; i < plan().ops.size(); ++i) {
      if (auto* linear = plan().ops[i].as<ops::Linear>(); linear != nullptr && linear->x == x_) {
        linear->x = y;
        break;
      }
    }
  }
  const ops::Plan& plan() const { return tiny_.plan; }

 private:
  static constexpr int64_t kHeads = 3, kHead = 64;
  static test::TinyShape shape() {
    test::TinyShape shape;
    shape.d_ff = 2 * kHeads * kHead, shape.head_dim = kHead;
    return shape;
  }
  ops::Plan& plan() { return tiny_.plan; }
  ops::ValueId value(const std::string& name, int64_t width = kHeads * kHead) {
    plan().values.push_back({name, width, plan().values[static_cast<size_t>(x_)].domain});
    return static_cast<ops::ValueId>(plan().values.size() - 1);
  }
  template <class R>
  void add(const std::string& name, R record) {
    ++at_;
    plan().ops.insert(plan().ops.begin() + static_cast<std::ptrdiff_t>(at_), {ops::Record(std::move(record)), name, 0});
  }
  ops::ValueId slice(const std::string& name, int64_t first) {
    const ops::ValueId y = value(name);
    add(name, ops::Slice{x_, kHeads, first, y});
    return y;
  }
  ops::ValueId join(const std::string& name, ops::ValueId a, ops::ValueId b, int64_t width_b) {
    const ops::ValueId y = value(name, kHeads * (kHead + width_b));
    add(name, ops::Join{a, b, kHeads, y});
    return y;
  }

  test::TinyPlan tiny_{shape()};
  size_t at_ = 0;
  ops::ValueId x_ = ops::kNone;
};

// One is cut from what itself lies in runs.
TEST(Views, OfRunsChangeNoBitInAnyKernelThatTakesThem) {
  const RunsPlan runs;
  EXPECT_EQ(places_of(runs.plan()),
            (std::vector<std::string>{"cut: view of ffn_act", "other: view of ffn_act", "one: copied",
                                      "narrow: layer in place", "wide: gated, norm in place",
                                      "more: clamped, act in place"}));
  expect_no_bit_changed(runs.plan());
}

}  // namespace
}  // namespace assay::engine
