// Qwen and its kin: the architecture turns halves, as the checkpoint does.
#include <fmt/format.h>

#include <cmath>

#include "assay/error.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {
namespace {

void qwen2(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  parts::require_no_window(d);
  d.config.expect("hidden_act", {"silu"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn);
}

void qwen3(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  parts::require_no_window(d);
  d.config.expect("hidden_act", {"silu"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kGatedFfn);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
  parts::pooling(d);
}

void qwen2moe(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  parts::require_no_window(d);
  parts::require_experts_everywhere(d);
  d.config.expect("hidden_act", {"silu"});
  d.config.expect_flag("norm_topk_prob", false);
  d.count("expert_feed_forward_length", d.config.count("moe_intermediate_size"));
  d.count("expert_shared_feed_forward_length", d.config.count("shared_expert_intermediate_size"));
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kExperts);
  d.take(rules::kGatedSharedExpert);
}

void qwen3moe(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  parts::require_no_window(d);
  parts::require_experts_everywhere(d);
  d.config.expect("hidden_act", {"silu"});
  if (!d.config.flag("norm_topk_prob", false)) {
    throw Error(Errc::unsupported,
                "config.json: norm_topk_prob is false; qwen3moe files have no key for it, and routers are normalised");
  }
  d.count("expert_feed_forward_length", d.config.count("moe_intermediate_size"));
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kExperts);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

void olmoe(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  d.number("attention.layer_norm_rms_epsilon", 1e-5);
  if (std::abs(d.config.number("rms_norm_eps") - 1e-5) > 1e-12) {
    throw Error(Errc::unsupported,
                fmt::format("config.json: rms_norm_eps is {}; olmoe files say 1e-05", d.config.number("rms_norm_eps")));
  }
  d.config.expect("hidden_act", {"silu"});
  d.config.expect_flag("norm_topk_prob", false);
  if (d.config.has("clip_qkv"))
    throw Error(Errc::unsupported, "config.json: clip_qkv is there; olmoe files have no key for it");
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kExperts);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

void seed_oss(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  d.config.expect("hidden_act", {"silu"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBeforeAsPost);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias", true);
  parts::check_bias(d, "attention_out_bias", "blk.0.attn_output.bias");
  parts::check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

// QK norms behind the rotation, under names of their own.
constexpr std::array kHunyuanNorms = {
    Rule{"model.layers.{}.self_attn.query_layernorm.weight", "blk.{}.attn_q_norm.weight", As::plain, true},
    Rule{"model.layers.{}.self_attn.key_layernorm.weight", "blk.{}.attn_k_norm.weight", As::plain, true},
};

// The scaling by alpha becomes the base of a plain rotation. Its context is what the base was made for; config.json
// says less.
void hunyuan_rope(Draft& d, double alpha_otherwise, int64_t dim) {
  Config& c = d.config;
  const Json* params = c.find_any({"rope_parameters", "rope_scaling"});
  std::string_view type = params == nullptr ? std::string_view() : params->text("rope_type");
  if (type.empty() && params != nullptr) type = params->text("type");
  if (type != "dynamic") {
    parts::rope(d);
    return;
  }
  const Json* given = params->find("alpha");
  const Json* theta = params->find("rope_theta") != nullptr ? params->find("rope_theta") : c.find("rope_theta");
  const double alpha = given == nullptr || given->is_null() ? alpha_otherwise : number_of(*given, "alpha");
  const double base = theta == nullptr ? 10000.0 : number_of(*theta, "rope_theta");
  if (dim <= 2 || !(alpha > 0))
    throw Error(Errc::bad_file, fmt::format("config.json: alpha = {} for heads of {} elements", alpha, dim));
  constexpr int64_t kContext = 256 * 1024;
  d.number("rope.freq_base", base * std::pow(alpha, static_cast<double>(dim) / static_cast<double>(dim - 2)));
  d.text("rope.scaling.type", "none");
  d.number("rope.scaling.factor", 1);
  d.count("rope.scaling.original_context_length", kContext);
  d.count("context_length", kContext);
}

void hunyuan_dense(Draft& d) {
  d.config.mark_read("num_experts");  // 1 in some: no experts
  parts::sizes(d, {.has_experts = false});
  parts::derive_head_dim(d);
  hunyuan_rope(d, 50, parts::head_dim(d));
  d.config.expect("hidden_act", {"silu"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(kHunyuanNorms);
  d.take(rules::kGatedFfn);
}

// The same number in all layers, or an array of it.
int64_t same_in_all(Draft& d, std::string_view key) {
  const Json* found = d.config.find(key);
  if (found == nullptr) throw Error(Errc::bad_file, fmt::format("config.json: needs {}", key));
  if (found->array() == nullptr) return d.config.count(key);
  std::optional<int64_t> value;
  for (const Json& one : *found->array()) {
    if (one.number() == nullptr || !one.number()->integer || *one.number()->integer < 0)
      throw Error(Errc::bad_file, fmt::format("config.json: {} holds {}", key, one.shown()));
    if (value && *value != *one.number()->integer) {
      throw Error(Errc::unsupported,
                  fmt::format("config.json: {} is not the same in all layers; {} files have one number", key,
                              d.architecture()));
    }
    value = *one.number()->integer;
  }
  if (!value) throw Error(Errc::bad_file, fmt::format("config.json: {} is empty", key));
  return *value;
}

constexpr std::array kHunyuanExperts = {
    Rule{"model.layers.{}.mlp.gate.wg.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    Rule{"model.layers.{}.mlp.experts.{x}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
    Rule{"model.layers.{}.mlp.shared_mlp.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_mlp.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    Rule{"model.layers.{}.mlp.shared_mlp.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
};

void hunyuan_moe(Draft& d) {
  parts::sizes(d);
  parts::derive_head_dim(d);
  hunyuan_rope(d, 1000, d.config.count("hidden_size") / d.n_heads);
  d.count("expert_shared_feed_forward_length", d.config.count("intermediate_size"));
  d.count("expert_feed_forward_length", same_in_all(d, "moe_intermediate_size"));
  d.count("expert_used_count", same_in_all(d, "moe_topk"));
  d.count("expert_shared_count", same_in_all(d, "num_shared_expert"));
  d.config.expect("hidden_act", {"silu"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(kHunyuanNorms);
  d.take(kHunyuanExperts);
}

void mellum(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  parts::require_norm_of_router(d, "norm_topk_prob");
  d.config.expect("hidden_act", {"silu"});
  d.count("expert_feed_forward_length", d.config.count("moe_intermediate_size"));
  if (const auto window = d.config.find_count("sliding_window"); window && d.config.flag("use_sliding_window", true)) {
    d.count("attention.sliding_window", *window);
    d.flags("attention.sliding_window_pattern", parts::window_layers(d, [](int64_t) { return false; }));
  }
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kExperts);
}

constexpr std::string_view kQwen2Defaults =
    R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,
        "hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":10000.0})";
constexpr std::string_view kQwen3Defaults =
    R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,
        "head_dim":128,"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":10000.0})";

}  // namespace

std::vector<Family> qwen_families() {
  using enum VocabularyKind;
  return {
      {"qwen2", {"Qwen2ForCausalLM"}, kQwen2Defaults, pieces_or_bpe, qwen2},
      {"qwen3", {"Qwen3ForCausalLM", "Qwen3Model"}, kQwen3Defaults, pieces_or_bpe, qwen3},
      {"qwen2moe", {"Qwen2MoeForCausalLM"}, {}, bpe, qwen2moe},
      {"qwen3moe", {"Qwen3MoeForCausalLM"}, {}, bpe, qwen3moe},
      {"olmoe", {"OlmoeForCausalLM"}, {}, bpe, olmoe},
      {"seed_oss", {"SeedOssForCausalLM"}, {}, bpe, seed_oss},
      {"hunyuan-dense", {"HunYuanDenseV1ForCausalLM"}, {}, bpe, hunyuan_dense, {.habit = TokenHabit::hunyuan}},
      {"hunyuan-moe", {"HunYuanMoEV1ForCausalLM"}, {}, bpe, hunyuan_moe},
      {"mellum", {"MellumForCausalLM"}, {}, bpe, mellum},
  };
}

}  // namespace assay::converting
