// Faults of how families of models are put together, each on a small random model of a family where it applies
// (tests/data: goldens/arch): an engine that runs a plan which is wrong in one place, or whose routers and states are.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "faulty/catalogue.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/attention/sparse_attention.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/rows/activate.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "ops/state/causal_conv.h"

namespace assay::faults {
namespace {

using ops::Plan;

template <class Record, class Change>
void each(Plan& plan, Change change) {
  for (ops::Op& op : plan.ops) {
    if (Record* record = op.as<Record>()) change(*record);
  }
}

template <class Record>
Record& named(Plan& plan, std::string_view name) {
  const auto found = std::ranges::find(plan.ops, name, &ops::Op::name);
  if (found == plan.ops.end()) throw std::logic_error("no op " + std::string(name));
  return found->get<Record>();
}

int64_t width(const Plan& plan, ops::ValueId id) { return plan.values[static_cast<size_t>(id)].width; }

void no_softcap(Plan& plan) {
  each<ops::Attention>(plan, [](auto& r) { r.softcap = 0; });
}
void no_final_softcap(Plan& plan) {
  each<ops::Softcap>(plan, [](auto& r) { r.cap = 1e15; });
}
void wider_window(Plan& plan) {
  each<ops::Attention>(plan, [](auto& r) { r.window += r.window > 0 ? 1 : 0; });
}
void windows_of_the_others(Plan& plan) {
  int64_t window = 0;
  each<ops::Attention>(plan, [&](auto& r) { window = std::max(window, r.window); });
  each<ops::Attention>(plan, [&](auto& r) { r.window = r.window > 0 ? 0 : window; });
}
// The parts of one fused matrix in another order of its rows.
void split(Plan& plan, const std::vector<std::string>& parts, const std::vector<size_t>& order) {
  std::vector<tensor::TensorView*> views;
  for (const std::string& part : parts)
    views.push_back(&plan.weights[static_cast<size_t>(named<ops::Linear>(plan, part).w)].view);
  const std::byte* at = views[0]->data.data();
  for (const size_t i : order) {
    views[i]->data = {at, views[i]->data.size()};
    at += views[i]->data.size();
  }
}
void qkv_in_another_order(Plan& plan) { split(plan, {"blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"}, {1, 2, 0}); }
void up_before_gate(Plan& plan) { split(plan, {"blk.0.ffn_gate", "blk.0.ffn_up"}, {1, 0}); }
void experts_up_before_gate(Plan& plan) {
  each<ops::ExpertLinear>(
      plan, [](auto& r) { r.first_row = r.rows_per_expert == 2 * r.d_out ? r.d_out - r.first_row : r.first_row; });
}

// A layer's norm of what attention gives, of what it reads.
void norm_first(Plan& plan) {
  const ops::ValueId x = named<ops::Linear>(plan, "blk.0.attn_q").x;
  ops::RmsNorm norm = named<ops::RmsNorm>(plan, "blk.0.post_attention_norm");
  const auto y = static_cast<ops::ValueId>(plan.values.size());
  plan.values.push_back({"norm_first", width(plan, x)});
  norm.x = x, norm.y = y;
  for (const char* name : {"blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"}) named<ops::Linear>(plan, name).x = y;
  plan.ops.insert(std::ranges::find(plan.ops, "blk.0.attn_q", &ops::Op::name), ops::Op{norm, "norm_first", 0});
}
void layer_norm_as_rms(Plan& plan) {
  for (ops::Op& op : plan.ops) {
    if (const auto* norm = op.as<ops::LayerNorm>())
      op.record = ops::RmsNorm{norm->x, norm->w, norm->eps, norm->d, norm->y};
  }
}
void no_norm_bias(Plan& plan) {
  each<ops::LayerNorm>(plan, [](auto& r) { r.bias = ops::kNone; });
}
void no_bias(Plan& plan) {
  each<ops::Linear>(plan, [](auto& r) { r.bias = ops::kNone; });
}
void no_expert_bias(Plan& plan) {
  each<ops::ExpertLinear>(plan, [](auto& r) { r.bias = ops::kNone; });
}

void whole_heads_rotated(Plan& plan) {
  const int64_t dim = named<ops::Rope>(plan, "blk.0.attn_q_rope").head_dim;
  for (ops::RopeSpec& rope : plan.ropes) {
    const double step = std::pow(rope.inverse_frequency[1] / rope.inverse_frequency[0],
                                 static_cast<double>(rope.dim) / static_cast<double>(dim));
    rope.dim = dim;
    rope.inverse_frequency.assign(static_cast<size_t>(dim / 2), 1.0);
    for (size_t i = 1; i < rope.inverse_frequency.size(); ++i)
      rope.inverse_frequency[i] = rope.inverse_frequency[i - 1] * step;
  }
}
// Queries and keys of layers that have no rotation, by that of the others.
void all_layers_rotated(Plan& plan) {
  std::vector<ops::Op> turned;
  for (const ops::Op& op : plan.ops) {
    const bool has_rope =
        std::ranges::any_of(plan.ops, [&](const ops::Op& o) { return o.layer == op.layer && o.is<ops::Rope>(); });
    const auto turn = [&](ops::ValueId& x, int64_t head_dim) {
      const auto y = static_cast<ops::ValueId>(plan.values.size());
      plan.values.push_back({op.name + "_turned", width(plan, x)});
      turned.push_back({ops::Rope{x, 0, width(plan, x) / head_dim, head_dim, y}, op.name + "_turned", op.layer});
      x = y;
    };
    ops::Op copy = op;
    const auto* store = op.as<ops::KvStore>();
    if (!has_rope && store != nullptr)
      turn(copy.get<ops::KvStore>().k, plan.cache_layers[static_cast<size_t>(store->layer)].head_dim);
    if (!has_rope && op.is<ops::Attention>()) turn(copy.get<ops::Attention>().q, op.get<ops::Attention>().head_dim);
    turned.push_back(std::move(copy));
  }
  plan.ops = std::move(turned);
}

void softmax_of_chosen(Plan& plan) {
  each<ops::Route>(plan, [](auto& r) { r.gating = ops::Gating::softmax_of_chosen; });
}
void softmax_of_all(Plan& plan) {
  each<ops::Route>(plan, [](auto& r) { r.gating = ops::Gating::softmax, r.normalise = false; });
}
void not_renormalised(Plan& plan) {
  each<ops::Route>(plan, [](auto& r) { r.normalise = false; });
}
void no_shared_gate(Plan& plan) {
  for (ops::Op& op : plan.ops) {
    const auto* gate = op.as<ops::Gate>();
    if (gate != nullptr && op.name.ends_with(".ffn_shexp")) op.record = ops::Slice{gate->up, 1, 0, gate->y};
  }
}
void no_sinks(Plan& plan) {
  each<ops::Attention>(plan, [](auto& r) { r.sinks = ops::kNone; });
}
void scale_of_cached_keys(Plan& plan) {
  each<ops::Attention>(plan, [](auto& r) { r.scale = 1 / std::sqrt(static_cast<double>(r.head_dim)); });
}
void scale_without_yarn(Plan& plan) {
  const int64_t key = width(plan, named<ops::Linear>(plan, "blk.0.attn_q_b").y) /
                      named<ops::Attention>(plan, "blk.0.attention").n_heads;
  each<ops::Attention>(plan, [key](auto& r) { r.scale = 1 / std::sqrt(static_cast<double>(key)); });
}
void all_keys_attended(Plan& plan) {
  for (ops::Op& op : plan.ops) {
    const auto* sparse = op.as<ops::SparseAttention>();
    if (sparse == nullptr) continue;
    op.record = ops::Attention{
        sparse->q, sparse->layer, sparse->n_heads, sparse->n_kv_heads, sparse->head_dim, sparse->scale, 0, sparse->y};
  }
}
void no_residual_scale(Plan& plan) { named<ops::Scale>(plan, "blk.0.attn_scaled").factor = 1; }
void logits_multiplied(Plan& plan) {
  for (ops::Op& op : plan.ops) {
    if (auto* scale = op.as<ops::Scale>(); scale != nullptr && scale->y == plan.logits)
      scale->factor = 1 / scale->factor;
  }
}
void tanh_for_erf(Plan& plan) {
  using enum ops::ActivationFunction;
  each<ops::Activate>(plan, [](auto& r) { r.activation = r.activation == gelu_erf ? gelu_tanh : r.activation; });
  each<ops::Gate>(plan, [](auto& r) { r.activation = r.activation == gelu_erf ? gelu_tanh : r.activation; });
}
void plain_gate(Plan& plan) {
  for (ops::Op& op : plan.ops) {
    if (const auto* gate = op.as<ops::ClampedGate>())
      op.record = ops::Gate{gate->gate, gate->up, ops::ActivationFunction::silu, gate->y};
  }
}

std::vector<Row> attention_rows() {
  return {
      {.id = "F1",
       .source = "vllm#7425; llama.cpp#8197",
       .what = "attention's softcap missing",
       .injected = "attention",
       .golden = "gemma2",
       .change_plan = no_softcap,
       .op = "blk.0.attention",
       .named_by = {"attention_softcap"}},
      {.id = "F2",
       .source = "",
       .what = "scores capped before they are scaled",
       .injected = "attention",
       .golden = "gemma2",
       .fault = Fault::softcap_before_scale,
       .op = "blk.0.attention",
       .named_by = {"attention_softcap"}},
      {.id = "F3",
       .source = "imp#688",
       .what = "the logits' softcap missing",
       .injected = "head",
       .golden = "gemma2",
       .change_plan = no_final_softcap,
       .op = "output_capped",
       .named_by = {"softcap"}},
      {.id = "F4",
       .source = "transformers#26792",
       .what = "window off by one",
       .injected = "attention",
       .golden = "gemma2",
       .change_plan = wider_window,
       .op = "blk.0.attention",
       .named_by = {"attention_window"}},
      {.id = "F5",
       .source = "TransformerLens#778; Megatron-Bridge#4875; transformers#31775",
       .what = "windows on the layers that see all",
       .injected = "attention",
       .golden = "gemma2",
       .change_plan = windows_of_the_others,
       .op = "blk.0.attention",
       .named_by = {"attention_window"}},
      {.id = "F6",
       .source = "slapo#46; ChatLearn#277",
       .what = "fused QKV split in the wrong order",
       .injected = "rows of the fused matrix",
       .golden = "phi3",
       .change_plan = qkv_in_another_order,
       .op = "blk.0.attn_q",
       .named_by = {"fused_split"}},
      {.id = "F7",
       .source = "",
       .what = "partial rotary width: whole heads rotated",
       .injected = "rotation",
       .golden = "glm4",
       .change_plan = whole_heads_rotated,
       .op = "blk.0.attn_q_rope",
       .named_by = {"rope_dims"}},
      {.id = "F8",
       .source = "Camelid#535; rknn-llm#501; mobius#233",
       .what = "layers without positions rotated",
       .injected = "queries and keys",
       .golden = "smollm3",
       .change_plan = all_layers_rotated,
       .op = "blk.3.attention",
       .named_by = {"attention_nope"}},
      {.id = "F9",
       .source = "vllm-metal#550",
       .what = "sinks forgotten",
       .injected = "attention",
       .golden = "gptoss",
       .change_plan = no_sinks,
       .op = "blk.0.attention",
       .named_by = {"attention_sinks"}},
      {.id = "F10",
       .source = "",
       .what = "MLA's scale of the absorbed keys' width",
       .injected = "attention",
       .golden = "deepseek2",
       .change_plan = scale_of_cached_keys,
       .op = "blk.0.attention",
       .named_by = {"attention_scale"}},
      {.id = "F11",
       .source = "mobius#548; Megatron-LM#1429; transformers#47435",
       .what = "MLA's scale without YaRN's part",
       .injected = "attention",
       .golden = "deepseek3-yarn",
       .change_plan = scale_without_yarn,
       .op = "blk.0.attention",
       .named_by = {"attention_scale"}},
  };
}

std::vector<Row> block_rows() {
  return {
      {.id = "F12",
       .source = "gpt-neox#1408",
       .what = "norm before attention in place of after it",
       .injected = "input of Q, K and V",
       .golden = "olmo2",
       .change_plan = norm_first,
       .op = "blk.0.attn_q",
       .named_by = {"norm_place"}},
      {.id = "F13",
       .source = "",
       .what = "LayerNorm computed as RMSNorm",
       .injected = "norm",
       .golden = "starcoder2",
       .change_plan = layer_norm_as_rms,
       .op = "blk.0.attn_norm",
       .named_by = {"layer_norm_rms"}},
      {.id = "F14",
       .source = "",
       .what = "a norm's bias missing",
       .injected = "norm",
       .golden = "gptneox",
       .change_plan = no_norm_bias,
       .op = "blk.0.attn_norm",
       .named_by = {"layer_norm_bias"}},
      {.id = "F15",
       .source = "",
       .what = "biases of projections missing",
       .injected = "matrix products",
       .golden = "starcoder2",
       .change_plan = no_bias,
       .op = "blk.0.attn_q",
       .named_by = {"linear_bias"}},
      {.id = "F16",
       .source = "",
       .what = "gate and up swapped in the fused tensor",
       .injected = "rows of the fused matrix",
       .golden = "phi3",
       .change_plan = up_before_gate,
       .op = "blk.0.ffn_gate",
       .named_by = {"weights_swapped", "fused_split"}},
      {.id = "F17",
       .source = "dfdx#804; candle#900; pocket-tts#278",
       .what = "GELU by tanh for GELU by erf",
       .injected = "activation",
       .golden = "gptneox",
       .change_plan = tanh_for_erf,
       .op = "blk.0.ffn_act",
       .named_by = {"activation"}},
      {.id = "F18",
       .source = "CTranslate2#1882",
       .what = "the residual's scale missing",
       .injected = "scale",
       .golden = "granite",
       .change_plan = no_residual_scale,
       .op = "blk.0.attn_scaled",
       .named_by = {"scale_factor"}},
      {.id = "F19",
       .source = "sonar#1054; unsloth#1218",
       .what = "logits multiplied by their divisor",
       .injected = "scale",
       .golden = "granite",
       .change_plan = logits_multiplied,
       .op = "output_scaled",
       .named_by = {"scale_factor"}},
      {.id = "F20",
       .source = "lucebox#210",
       .what = "state not reset when a sequence is cut",
       .injected = "states",
       .golden = "mamba2",
       .fault = Fault::state_not_reset,
       .stage = "kv_cache",
       .named_by = {"cut back to the middle"}},
      {.id = "F21",
       .source = "mamba#1027; vllm#56196",
       .what = "the convolution's tail off by one",
       .injected = "states",
       .golden = "lfm2",
       .fault = Fault::conv_tail_off_by_one,
       .op = "blk.0.shortconv_conv",
       .named_by = {"conv_tail"}},
  };
}

std::vector<Row> expert_rows() {
  return {
      {.id = "F22",
       .source = "mlxcel#391; Megatron-LM#955; litgpt#2013",
       .what = "softmax after the choice of experts, not before",
       .injected = "router",
       .golden = "qwen2moe",
       .change_plan = softmax_of_chosen,
       .op = "blk.0.ffn_routes",
       .named_by = {"route_gating"}},
      {.id = "F23",
       .source = "sglang#35160",
       .what = "softmax before the choice of experts, not after",
       .injected = "router",
       .golden = "gptoss",
       .change_plan = softmax_of_all,
       .op = "blk.0.ffn_routes",
       .named_by = {"route_gating"}},
      {.id = "F24",
       .source = "torchtitan#1448",
       .what = "weights not renormalised",
       .injected = "router",
       .golden = "qwen3moe",
       .change_plan = not_renormalised,
       .op = "blk.0.ffn_routes",
       .named_by = {"route_normalise"}},
      {.id = "F25",
       .source = "vllm#12002; transformers#41647, #41663",
       .what = "correction bias in the weight",
       .injected = "router",
       .golden = "minimaxm2",
       .fault = Fault::route_bias_in_weight,
       .op = "blk.0.ffn_routes",
       .named_by = {"route_bias"}},
      {.id = "F26",
       .source = "",
       .what = "the best expert passed over",
       .injected = "router",
       .golden = "mixtral",
       .fault = Fault::route_best_passed_over,
       .op = "blk.0.ffn_routes",
       .named_by = {"route_choice"}},
      {.id = "F27",
       .source = "lmdeploy#3491; torchtitan#36; Pai-Megatron-Patch#402",
       .what = "the shared expert's gate forgotten",
       .injected = "gate",
       .golden = "qwen2moe",
       .change_plan = no_shared_gate,
       .op = "blk.0.ffn_shexp",
       .named_by = {"gate_missing"}},
      {.id = "F28",
       .source = "",
       .what = "gate and up swapped in the experts' fused tensor",
       .injected = "rows of the fused tensor",
       .golden = "gemma4-moe",
       .change_plan = experts_up_before_gate,
       .op = "blk.0.ffn_gate_exps",
       .named_by = {"expert_fused"}},
      {.id = "F29",
       .source = "",
       .what = "experts' biases missing",
       .injected = "experts",
       .golden = "gptoss",
       .change_plan = no_expert_bias,
       .op = "blk.0.ffn_gate_exps",
       .named_by = {"expert_bias"}},
      {.id = "F30",
       .source = "",
       .what = "SiLU(gate) up for the clamped gate",
       .injected = "gate",
       .golden = "gptoss",
       .change_plan = plain_gate,
       .op = "blk.0.ffn_act_exps",
       .named_by = {"gate_clamped"}},
  };
}

std::vector<Row> choice_rows() {
  return {
      {.id = "F31",
       .source = "",
       .what = "an indexer's choice ignored: all keys attended to",
       .injected = "attention",
       .golden = "deepseek32",
       .change_plan = all_keys_attended,
       .op = "blk.0.attention",
       .named_by = {"choice_ignored"}},
      {.id = "F32",
       .source = "",
       .what = "an indexer chooses one key too few",
       .injected = "indexer",
       .golden = "glmdsa",
       .fault = Fault::choice_one_too_few,
       .op = "blk.0.indexer.choice",
       .named_by = {"choice_count"}},
  };
}

}  // namespace

const std::vector<Row>& family_rows() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> all = attention_rows();
    for (auto part : {block_rows, expert_rows, choice_rows}) {
      const std::vector<Row> more = part();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return rows;
}

}  // namespace assay::faults
