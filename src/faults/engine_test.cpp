// Engines with a fault: our own executor runs a plan that was changed (or runs with other numerics
// than declared) while the checker holds it against the right one; the dictionary must name the
// cause of the first failure.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "faults/dictionary.h"
#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"
#include "support/checked_run.h"
#include "support/tiny_plan.h"

namespace assay::faults {
namespace {

using test::CheckedRun;
using test::CheckedSetting;
using test::TinyPlan;
using test::TinyShape;

template <class Record>
Record& record_of(ops::Plan& plan, std::string_view name, int32_t layer) {
  for (ops::Op& op : plan.ops) {
    if (op.name == name && op.layer == layer) return op.get<Record>();
  }
  throw std::logic_error("no such op");
}

struct EngineFault {
  const char* name;
  bool gemma;
  void (*change)(ops::Plan& plan);
  const char* first_op;  // of layer 1, or outside the layers
  const char* id;
  const char* says;
};

void change_ropes(ops::Plan& plan, double theta, bool interleaved, double factor) {
  for (ops::RopeSpec& rope : plan.ropes) {
    rope.interleaved = interleaved;
    for (size_t i = 0; i < rope.inverse_frequency.size(); ++i) {
      rope.inverse_frequency[i] =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.dim)) / factor;
    }
  }
}

const EngineFault kFaults[] = {
    {"pairing", false, [](ops::Plan& p) { change_ropes(p, 1e4, false, 1); }, "attn_q_rope", "rope_pairing", "halves"},
    {"pairing of gemma", true, [](ops::Plan& p) { change_ropes(p, 1e4, true, 1); }, "attn_q_rope", "rope_pairing",
     "neighbours (2i, 2i + 1) where"},
    {"theta", false, [](ops::Plan& p) { change_ropes(p, 5e5, true, 1); }, "attn_q_rope", "rope_theta", "500000"},
    {"linear scaling", false, [](ops::Plan& p) { change_ropes(p, 1e4, true, 2); }, "attn_q_rope", "rope_scaling",
     "divided by 2"},
    {"eps", false, [](ops::Plan& p) { record_of<ops::RmsNorm>(p, "attn_norm", 1).eps = 1e-3f; }, "attn_norm",
     "norm_eps", "eps 0.001"},
    {"norm weight", false,
     [](ops::Plan& p) { record_of<ops::RmsNorm>(p, "ffn_norm", 1).w = record_of<ops::RmsNorm>(p, "attn_norm", 1).w; },
     "ffn_norm", "norm_other_weight", "in place of"},
    {"k and v", false,
     [](ops::Plan& p) {
       std::swap(record_of<ops::Linear>(p, "attn_k", 1).w, record_of<ops::Linear>(p, "attn_v", 1).w);
     },
     "attn_k", "weights_swapped", "in place of"},
    {"other layer", false,
     [](ops::Plan& p) { record_of<ops::Linear>(p, "ffn_down", 1).w = record_of<ops::Linear>(p, "ffn_down", 0).w; },
     "ffn_down", "weight_of_other_layer", "in place of"},
    {"bias", false, [](ops::Plan& p) { record_of<ops::Linear>(p, "attn_q", 1).bias = ops::kNone; }, "attn_q",
     "linear_bias", "dropped"},
    {"scale", false, [](ops::Plan& p) { record_of<ops::Attention>(p, "attention", 1).scale = 1; }, "attention",
     "attention_scale", "missing"},
    {"window", false, [](ops::Plan& p) { record_of<ops::Attention>(p, "attention", 1).window = 16; }, "attention",
     "attention_window", "16 keys"},
    {"gate", false,
     [](ops::Plan& p) {
       std::swap(record_of<ops::Gate>(p, "ffn_act", 1).gate, record_of<ops::Gate>(p, "ffn_act", 1).up);
     },
     "ffn_act", "gate_swapped", "swapped"},
    {"activation", true,
     [](ops::Plan& p) { record_of<ops::Gate>(p, "ffn_act", 1).activation = ops::ActivationFunction::silu; }, "ffn_act",
     "gate_activation", "SiLU in place of GELU"},
    {"residual", false,
     [](ops::Plan& p) { record_of<ops::Add>(p, "attn_residual", 1).a = record_of<ops::Add>(p, "attn_residual", 1).b; },
     "attn_residual", "add_twice", "added to itself"},
    {"embedding", true, [](ops::Plan& p) { record_of<ops::Embed>(p, "embed", -1).scale = 1; }, "embed", "embed_scale",
     "missing"},
    {"head", false,
     [](ops::Plan& p) { record_of<ops::Linear>(p, "output", -1).w = record_of<ops::Embed>(p, "embed", -1).table; },
     "output", "tied_head", "in place of"},
};

std::string cause_of(const CheckedRun& run, const ops::Plan& plan, const CheckedSetting& setting,
                     base::ThreadPool& pool, Cause& cause) {
  const FailedOp* failed = run.checker.first_failure();
  if (failed == nullptr) return "nothing failed";
  const std::vector<Cause> causes = find_causes(plan, *failed, setting.declared(), pool);
  if (!causes.empty()) cause = causes[0];
  return plan.ops[static_cast<size_t>(failed->i_op)].name;
}

TEST(DictionaryEngines, FaultsOfAPlanAreNamed) {
  base::ThreadPool pool(2);
  const CheckedSetting settings[] = {{"oracle", true},
                                     {"f32", false, true, 2, ops::CacheType::f32},
                                     {"exact/15", false, false, 2, ops::CacheType::f16},
                                     {"exact/8", false, false, 1, ops::CacheType::q8_0}};
  for (const CheckedSetting& setting : settings) {
    for (const EngineFault& fault : kFaults) {
      TinyShape shape;
      shape.gemma = fault.gemma;
      const TinyPlan right(shape);
      ops::Plan wrong = right.plan;
      fault.change(wrong);
      CheckedRun run(wrong, right.plan, setting, pool, 64);
      const std::vector<int32_t> tokens = run.random_tokens(30, 5);
      run.run(std::span(tokens).first(20));
      run.run(std::span(tokens).subspan(20, 10));
      Cause cause;
      EXPECT_EQ(cause_of(run, right.plan, setting, pool, cause), fault.first_op) << fault.name << ", " << setting.name;
      EXPECT_EQ(cause.id, fault.id) << fault.name << ", " << setting.name << ": " << cause.text << " "
                                    << cause.residual;
      EXPECT_TRUE(cause.reproduces) << fault.name << ", " << setting.name << " " << cause.residual;
      EXPECT_NE(cause.text.find(fault.says), std::string::npos) << fault.name << ": " << cause.text;
    }
  }
}

struct OtherNumerics {
  CheckedSetting declared, real;
  const char* id;
  const char* says;
};

TEST(DictionaryEngines, OtherNumericsThanDeclaredAreNamed) {
  base::ThreadPool pool(2);
  const CheckedSetting exact{"exact/15", false, false, 2, ops::CacheType::f16},
      exact_8{"exact/8", false, false, 1, ops::CacheType::f16}, q8{"cache q8_0", false, false, 2, ops::CacheType::q8_0};
  for (const OtherNumerics& other :
       {OtherNumerics{exact, exact_8, "activation_bits", "8 bits"},
        OtherNumerics{exact_8, exact, "activation_bits", "15 bits"},
        OtherNumerics{exact, q8, "kv_type", "kept as q8_0"}, OtherNumerics{q8, exact, "kv_type", "kept as f16"}}) {
    const TinyPlan tiny({});
    CheckedRun run(tiny.plan, other.declared, pool, 64);
    ops::ExecutorOptions o;
    o.n_ctx = o.n_batch_max = o.n_outputs_max = 64;
    o.cache_k = o.cache_v = other.real.cache;
    o.planes = other.real.planes;
    run.executor = backend::cpu::make_cpu_executor(tiny.plan, o, {other.real.kernels}, pool);
    run.run(run.random_tokens(30, 5));
    Cause cause;
    cause_of(run, tiny.plan, other.declared, pool, cause);
    EXPECT_EQ(cause.id, other.id) << other.declared.name << " but " << other.real.name << ": " << cause.text;
    EXPECT_TRUE(cause.reproduces) << cause.residual;
    EXPECT_NE(cause.text.find(other.says), std::string::npos) << cause.text;
  }
}

}  // namespace
}  // namespace assay::faults
