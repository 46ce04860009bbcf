// Latent attention: keys and values come from one short vector. Files have the two matrices that expand it apart, keys
// turned, so that it can be attended over as it is; one head of keys and values then stands for all.
#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {

// A head's rows of kv_b_proj are those of its keys, then those of its values.
void parts::split_expansion(Draft& d, int64_t layer) {
  const int64_t nope = d.config.count("qk_nope_head_dim"), width = d.config.count("v_head_dim"), head = nope + width;
  const StoredTensor& t = d.need(fmt::format("model.layers.{}.self_attn.kv_b_proj.weight", layer));
  if (t.shape.size() != 2 || nope == 0 || width == 0 || t.rows() != d.n_heads * head) {
    throw Error(Errc::bad_file,
                fmt::format("{} has {} rows; needs {} heads of {} + {}", t.name, t.rows(), d.n_heads, nope, width));
  }
  std::vector<Slice> keys, values;
  for (int64_t i = 0; i < d.n_heads; ++i) {
    keys.push_back({.tensor = &t, .n_rows = t.cols(), .from_columns = true, .block_row = i * head});
    values.push_back({.tensor = &t, .first = i * head + nope, .n_rows = width});
  }
  d.add(fmt::format("blk.{}.attn_k_b.weight", layer), {d.n_heads, t.cols(), nope}, std::move(keys));
  d.add(fmt::format("blk.{}.attn_v_b.weight", layer), {d.n_heads, width, t.cols()}, std::move(values));
}

namespace {

constexpr std::array kLatent = {
    Rule{"model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight"},
    Rule{"model.layers.{}.self_attn.kv_a_proj_with_mqa.bias", "blk.{}.attn_kv_a_mqa.bias", As::plain, true},
    Rule{"model.layers.{}.self_attn.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", As::plain, true},
};
constexpr std::array kQueries = {
    Rule{"model.layers.{}.self_attn.q_a_proj.weight", "blk.{}.attn_q_a.weight"},
    Rule{"model.layers.{}.self_attn.q_a_proj.bias", "blk.{}.attn_q_a.bias", As::plain, true},
    Rule{"model.layers.{}.self_attn.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight"},
    Rule{"model.layers.{}.self_attn.q_b_proj.weight", "blk.{}.attn_q_b.weight"},
};
constexpr std::array kQueriesAtOnce = {Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"}};
constexpr std::array kExpanded = {Rule{"model.layers.{}.self_attn.kv_b_proj.weight", "blk.{}.attn_kv_b.weight"}};
constexpr std::array kIndexer = {
    Rule{"model.layers.{}.self_attn.indexer.wq_b.weight", "blk.{}.indexer.attn_q_b.weight"},
    Rule{"model.layers.{}.self_attn.indexer.wk.weight", "blk.{}.indexer.attn_k.weight"},
    Rule{"model.layers.{}.self_attn.indexer.k_norm.weight", "blk.{}.indexer.k_norm.weight"},
    Rule{"model.layers.{}.self_attn.indexer.k_norm.bias", "blk.{}.indexer.k_norm.bias"},
    Rule{"model.layers.{}.self_attn.indexer.weights_proj.weight", "blk.{}.indexer.proj.weight"},
};
constexpr std::array kLatentBias = {
    Rule{"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"}};
constexpr std::array kFusedExperts = {
    Rule{"model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight"},
    Rule{"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight"},
};

void latent_keys(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::rope(d, {.magnitude = [](double, double) { return 1.0; }});
  const int64_t rank = c.count("kv_lora_rank"), turned = c.count("qk_rope_head_dim");
  const bool has_experts = d.n_experts > 0;
  d.count("attention.head_count_kv", 1);
  d.count("leading_dense_block_count", has_experts ? c.find_count("first_k_dense_replace").value_or(0) : d.n_layers);
  d.count("vocab_size", c.count("vocab_size"));
  if (const auto query = c.find_count("q_lora_rank")) d.count("attention.q_lora_rank", *query);
  d.count("attention.kv_lora_rank", rank);
  d.count("attention.key_length", rank + turned);
  d.count("attention.value_length", rank);
  d.count("attention.key_length_mla", c.count("qk_nope_head_dim") + turned);
  d.count("attention.value_length_mla", c.count("v_head_dim"));
  d.count("expert_feed_forward_length",
          c.has("moe_intermediate_size") ? c.count("moe_intermediate_size") : c.count("intermediate_size"));
  d.count("expert_shared_count", c.find_count("n_shared_experts").value_or(0));
  if (const auto scale = c.find_number("routed_scaling_factor")) d.number("expert_weights_scale", *scale);
  if (c.flag("norm_topk_prob", false)) {
    d.flag("expert_weights_norm", true);
    if (c.text("model_type") == "deepseek_v2")
      d.notes.push_back(
          "config.json: norm_topk_prob is true, which the published code of DeepSeek V2 and readers of the file "
          "follow; "
          "transformers' class does not");
  }
  d.count("rope.dimension_count", turned);
  const Json* params = c.find_any({"rope_parameters", "rope_scaling"});
  const Json* all = params == nullptr ? nullptr : params->find("mscale_all_dim");
  if (all != nullptr && !all->is_null())
    d.number("rope.scaling.yarn_log_multiplier", 0.1 * number_of(*all, "mscale_all_dim"));
  c.expect("hidden_act", {"silu"});
  for (const char* key : {"head_dim", "qk_head_dim", "topk_method", "moe_layer_freq", "ep_size", "rope_interleave",
                          "mlp_bias", "attention_bias", "num_nextn_predict_layers", "mlp_layer_types",
                          "max_window_layers", "sliding_window", "partial_rotary_factor", "first_k_dense_replace"}) {
    c.mark_read(key);
  }
}

void latent_tensors(Draft& d) {
  const int64_t first = d.n_experts == 0 ? d.n_layers : d.config.find_count("first_k_dense_replace").value_or(0);
  if (first > d.n_layers)
    throw Error(Errc::bad_file,
                fmt::format("config.json: first_k_dense_replace is {} of {} layers", first, d.n_layers));
  d.leave_layers(d.n_layers, "they predict further tokens");
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(kLatent);
  if (d.config.has("q_lora_rank")) {
    d.take(kQueries);
  } else {
    d.take(kQueriesAtOnce);
  }
  for (int64_t layer = 0; layer < d.n_layers; ++layer) parts::split_expansion(d, layer);
  d.take(rules::kGatedFfn, 0, first);
  if (first == d.n_layers) return;
  if (d.has(fmt::format("model.layers.{}.mlp.experts.gate_up_proj", first))) {
    d.take(kFusedExperts, first, d.n_layers);
  } else {
    d.take(rules::kExperts, first, d.n_layers);
  }
  if (d.has(fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", first)))
    d.take(kLatentBias, first, d.n_layers);
  if (d.config.find_count("n_shared_experts").value_or(0) > 0) d.take(rules::kSharedExperts, first, d.n_layers);
}

void deepseek2(Draft& d) {
  latent_keys(d);
  latent_tensors(d);
}

void indexer_keys(Draft& d) {
  d.count("attention.indexer.head_count", d.config.count("index_n_heads"));
  d.count("attention.indexer.key_length", d.config.count("index_head_dim"));
  d.count("attention.indexer.top_k", d.config.count("index_topk"));
}

void deepseek32(Draft& d) {
  latent_keys(d);
  indexer_keys(d);
  latent_tensors(d);
  d.take(kIndexer);
}

// Layers whose type is "shared" have no indexer.
void glm_dsa(Draft& d) {
  latent_keys(d);
  indexer_keys(d);
  std::vector<bool> has_indexer(static_cast<size_t>(d.n_layers), true);
  if (const std::vector<std::string> types = d.config.texts("indexer_types"); !types.empty()) {
    if (types.size() != has_indexer.size()) {
      throw Error(Errc::bad_file,
                  fmt::format("config.json: indexer_types has {} entries for {} layers", types.size(), d.n_layers));
    }
    std::transform(types.begin(), types.end(), has_indexer.begin(), [](const auto& type) { return type == "full"; });
  }
  d.flags("attention.indexer.types", has_indexer);
  latent_tensors(d);
  d.take(kIndexer, has_indexer);
}

// Queries grow with the position. llama.cpp's converter leaves these keys out, though its reader knows them.
void mistral4(Draft& d) {
  latent_keys(d);
  const Json* params = d.config.find("rope_parameters");
  const auto find = [&](std::string_view key) {
    const Json* value = params == nullptr ? nullptr : params->find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  };
  if (const Json* beta = find("llama_4_scaling_beta")) {
    const std::string_view key = "original_max_position_embeddings";
    const Json* original = find(key);
    if (original == nullptr) throw Error(Errc::bad_file, fmt::format("config.json: rope_parameters needs {}", key));
    d.number("attention.temperature_scale", number_of(*beta, "llama_4_scaling_beta"));
    d.count("attention.temperature_length", whole_of(number_of(*original, key), key));
  }
  latent_tensors(d);
}

void minicpm3(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::require_usual_base(d, "rope_theta", "longrope");
  d.count("vocab_size", c.count("vocab_size"));
  if (const auto query = c.find_count("q_lora_rank")) d.count("attention.q_lora_rank", *query);
  d.count("attention.kv_lora_rank", c.count("kv_lora_rank"));
  const int64_t turned = c.count("qk_rope_head_dim");
  d.count("attention.key_length", c.count("qk_nope_head_dim") + turned);
  d.count("rope.dimension_count", turned);
  if (const Json* scaling = c.find_any({"rope_parameters", "rope_scaling"});
      scaling != nullptr && scaling->find("long_factor") != nullptr) {
    parts::long_factors(d, *scaling, turned / 2);
    const Json* first = scaling->find("original_max_position_embeddings");
    const int64_t context = c.count("max_position_embeddings");
    const int64_t original = first == nullptr ? context
                                              : whole_of(number_of(*first, "original_max_position_embeddings"),
                                                         "original_max_position_embeddings");
    if (original != context) {  // else readers find what they need in the context's length
      d.count("rope.scaling.original_context_length", original);
      d.number("rope.scaling.attn_factor", parts::long_rope_factor(context, original));
    }
  }
  const auto fixed = [&](std::string_view key, double value) {
    if (const auto found = c.find_number(key); found && *found != value) {
      throw Error(Errc::unsupported,
                  fmt::format("config.json: {} is {}; minicpm3 files have no key for it, and readers take {}", key,
                              *found, value));
    }
  };
  fixed("scale_emb", 12);
  fixed("scale_depth", 1.4);
  fixed("dim_model_base", 256);
  c.expect("hidden_act", {"silu"});
  c.expect_flag("attention_bias", false);
  for (const char* key : {"head_dim", "qk_head_dim", "v_head_dim", "mlp_bias", "pretraining_tp"}) c.mark_read(key);
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(kLatent);
  d.take(kQueries);
  d.take(kExpanded);
  d.take(rules::kGatedFfn);
}

constexpr std::string_view kDeepseekDefaults = R"({"kv_lora_rank":512,"rms_norm_eps":1e-6})";
// Classes whose routers know no other function: where config.json does not name it, the file does.
constexpr std::string_view kSigmoidDefaults =
    R"({"kv_lora_rank":512,"rms_norm_eps":1e-6,"scoring_func":"sigmoid","norm_topk_prob":true})";

}  // namespace

std::vector<Family> latent_families() {
  using enum VocabularyKind;
  return {
      {"deepseek2", {"DeepseekV2ForCausalLM"}, kDeepseekDefaults, bpe, deepseek2},
      {"deepseek2", {"DeepseekV3ForCausalLM"}, kSigmoidDefaults, bpe, deepseek2},
      {"deepseek2", {"Glm4MoeLiteForCausalLM"}, kSigmoidDefaults, bpe, deepseek2, parts::glm4_vocabulary()},
      {"deepseek32", {"DeepseekV32ForCausalLM"}, kSigmoidDefaults, bpe, deepseek32},
      {"glm-dsa", {"GlmMoeDsaForCausalLM"}, kSigmoidDefaults, bpe, glm_dsa, parts::glm4_vocabulary()},
      {"mistral4", {"Mistral4ForCausalLM"}, kDeepseekDefaults, bpe, mistral4},
      {"mistral4",
       {"Mistral3ForConditionalGeneration"},
       kDeepseekDefaults,
       bpe,
       mistral4,
       {.model_types = {"mistral4"}}},
      {"minicpm3",
       {"MiniCPM3ForCausalLM"},
       R"({"tie_word_embeddings":true,"rms_norm_eps":1e-5})",
       pieces_or_bpe,
       minicpm3},
  };
}

}  // namespace assay::converting
