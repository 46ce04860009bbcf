// Gemma: norms of 1 + weight up to the third, the head is the embedding.
#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {
namespace {

constexpr std::array kGemmaEnds = {
    Rule{"model.embed_tokens.weight", "token_embd.weight", As::vocabulary},
    Rule{"model.norm.weight", "output_norm.weight", As::plus_one},
};
constexpr std::array kGemmaNorms = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", As::plus_one},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", As::plus_one},
};
constexpr std::array kGemma2Norms = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", As::plus_one},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", As::plus_one},
    Rule{"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", As::plus_one},
    Rule{"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", As::plus_one},
};
constexpr std::array kGemma3HeadNorms = {
    Rule{"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", As::plus_one},
    Rule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", As::plus_one},
};

// The head is the embedding in all of them; a copy of it is of no use.
void gemma_ends(Draft& d) {
  if (!d.config.flag("tie_word_embeddings", true))
    throw Error(Errc::unsupported, "config.json: tie_word_embeddings is false; gemma files have no head of their own");
  d.leave("lm_head.weight");
  d.config.expect_flag("attention_bias", false);
  d.take(kGemmaEnds);
}

// Where the file has no key for the base, it is 10000 and nothing is scaled.
void require_plain_rope(Draft& d) {
  const Json* params = d.config.find("rope_parameters");
  if (params == nullptr) params = d.config.find("rope_scaling");
  const Json* theta = params != nullptr ? params->find("rope_theta") : nullptr;
  if (theta == nullptr) theta = d.config.find("rope_theta");
  const std::string_view type = params == nullptr ? std::string_view() : params->text("rope_type");
  if ((theta != nullptr && number_of(*theta, "rope_theta") != 10000) || (!type.empty() && type != "default")) {
    throw Error(Errc::unsupported,
                fmt::format("config.json: {} files have no key for a rope_theta other than 10000, nor for scaling",
                            d.architecture()));
  }
}

void gemma(Draft& d) {
  d.config.expect_flag("use_bidirectional_attention", false);
  parts::sizes(d);
  parts::key_lengths(d);
  require_plain_rope(d);
  d.config.expect("hidden_act",
                  {"gelu", "gelu_pytorch_tanh"});  // "gelu" is said and the tanh form meant, in the class itself
  d.config.expect("hidden_activation", {"gelu_pytorch_tanh"});
  gemma_ends(d);
  d.take(kGemmaNorms);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn);
}

// The scale of the scores has no key: readers know it from the model's size.
void require_score_scale(Draft& d, int64_t n_layers_of_largest) {
  const double scalar = d.config.number("query_pre_attn_scalar");
  const double expected = d.n_layers == n_layers_of_largest
                              ? static_cast<double>(d.config.count("hidden_size")) / static_cast<double>(d.n_heads)
                              : static_cast<double>(d.config.count("head_dim"));
  if (scalar != expected) {
    throw Error(
        Errc::unsupported,
        fmt::format("config.json: query_pre_attn_scalar is {}; {} files have no key for it, and readers take {}",
                    scalar, d.architecture(), expected));
  }
}

void gemma2(Draft& d) {
  d.config.expect_flag("use_bidirectional_attention", false);
  parts::sizes(d);
  parts::key_lengths(d);
  require_plain_rope(d);
  require_score_scale(d, 46);
  d.number("attn_logit_softcapping", d.config.number("attn_logit_softcapping"));
  d.number("final_logit_softcapping", d.config.number("final_logit_softcapping"));
  d.count("attention.sliding_window", d.config.count("sliding_window"));
  const std::vector<bool> windows = parts::window_layers(d, [](int64_t layer) { return layer % 2 == 0; });
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    if (windows[layer] != (layer % 2 == 0))
      throw Error(Errc::unsupported,
                  "config.json: layer_types are not window and full in turn; gemma2 files have no key for them");
  }
  d.config.mark_read("hidden_act");
  d.config.expect("hidden_activation", {"gelu_pytorch_tanh"});
  gemma_ends(d);
  d.take(kGemma2Norms);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn);
}

void gemma3_keys(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d, {.local_theta = 10000});
  require_score_scale(d, 62);
  if (d.config.has("attn_logit_softcapping"))
    throw Error(Errc::unsupported, "config.json: attn_logit_softcapping is there; gemma3 files have no key for it");
  if (const auto cap = d.config.find_number("final_logit_softcapping"); cap && *cap != 0)
    d.number("final_logit_softcapping", *cap);
  d.count("attention.sliding_window", d.config.count("sliding_window"));
  if (d.config.find_count("sliding_window_pattern").value_or(6) != 6) {
    throw Error(Errc::unsupported, "config.json: sliding_window_pattern is not 6; gemma3 files have no key for it");
  }
  const std::vector<bool> windows = parts::window_layers(d, [](int64_t layer) { return layer % 6 != 5; });
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    if (windows[layer] != (layer % 6 != 5))
      throw Error(Errc::unsupported,
                  "config.json: layer_types are not five windows and one full; gemma3 files have no key for them");
  }
}

void gemma3_tensors(Draft& d) {
  d.config.mark_read("hidden_act");
  d.config.expect("hidden_activation", {"gelu_pytorch_tanh"});
  gemma_ends(d);
  d.take(kGemma2Norms);
  d.take(kGemma3HeadNorms);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn);
}

void gemma3(Draft& d) {
  d.config.expect_flag("use_bidirectional_attention", false);
  gemma3_keys(d);
  gemma3_tensors(d);
}

// Dense layers behind the pooling, each in a folder of its own.
void dense_layers(Draft& d) {
  const auto modules = d.folder.json_of("modules.json");
  if (!modules || modules->array() == nullptr) return;
  const bool has_dense = std::any_of(modules->array()->begin(), modules->array()->end(),
                                     [](const Json& one) { return one.text("type").ends_with("Dense"); });
  if (has_dense)
    d.notes.push_back(
        "modules.json: dense layers follow the pooling there; they are left out, as llama.cpp's converter leaves them "
        "unless told otherwise");
}

void gemma_embedding(Draft& d) {
  d.config.expect_flag("use_bidirectional_attention", true);
  gemma3_keys(d);
  gemma3_tensors(d);
  parts::pooling(d);
  dense_layers(d);
}

constexpr std::array kGemma4Ends = {
    Rule{"model.embed_tokens.weight", "token_embd.weight", As::vocabulary},
    Rule{"model.norm.weight", "output_norm.weight"},
};
constexpr std::array kGemma4 = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    Rule{"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"},
    Rule{"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    Rule{"model.layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight"},
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    Rule{"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
};
// Layers that read the cache of another have neither; where keys are values there is no v_proj.
constexpr std::array kGemma4Keys = {
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    Rule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
};
constexpr std::array kGemma4Values = {Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"}};
constexpr std::array kGemma4Inputs = {
    Rule{"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    Rule{"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    Rule{"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    Rule{"model.layers.{}.per_layer_input_gate.weight", "blk.{}.inp_gate.weight"},
    Rule{"model.layers.{}.per_layer_projection.weight", "blk.{}.proj.weight"},
    Rule{"model.layers.{}.post_per_layer_input_norm.weight", "blk.{}.post_norm.weight"},
};
constexpr std::array kGemma4Experts = {
    Rule{"model.layers.{}.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight"},
    Rule{"model.layers.{}.experts.down_proj", "blk.{}.ffn_down_exps.weight"},
    Rule{"model.layers.{}.router.proj.weight", "blk.{}.ffn_gate_inp.weight"},
    Rule{"model.layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale"},
    Rule{"model.layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale"},
    Rule{"model.layers.{}.pre_feedforward_layernorm_2.weight", "blk.{}.pre_ffw_norm_2.weight"},
    Rule{"model.layers.{}.post_feedforward_layernorm_1.weight", "blk.{}.post_ffw_norm_1.weight"},
    Rule{"model.layers.{}.post_feedforward_layernorm_2.weight", "blk.{}.post_ffw_norm_2.weight"},
};

// Full layers turn the first part of a head; a divisor of 1e30 stands for "not at all".
void gemma4_rope(Draft& d, int64_t full_dim) {
  const Json* params = d.config.find("rope_parameters");
  const Json* full = params == nullptr ? nullptr : params->find("full_attention");
  if (full == nullptr || full->text("rope_type") != "proportional") {
    throw Error(Errc::unsupported,
                "config.json: rope_parameters of full layers are not \"proportional\"; gemma4 files have no key for "
                "another kind");
  }
  const Json* share = full->find("partial_rotary_factor");
  if (share == nullptr)
    throw Error(Errc::bad_file, "config.json: rope_parameters of full layers need partial_rotary_factor");
  const double part = number_of(*share, "partial_rotary_factor");
  if (!(part > 0) || part > 1)
    throw Error(Errc::bad_file,
                fmt::format("config.json: partial_rotary_factor is {}; needs more than 0, at most 1", part));
  std::vector<float> factors(static_cast<size_t>(full_dim / 2), 1e30f);
  std::fill_n(factors.begin(), static_cast<int64_t>(static_cast<double>(full_dim) * part / 2), 1.0f);
  d.make("rope_freqs.weight", std::move(factors));
}

// What full layers have otherwise: named so of old, else by layer.
std::optional<int64_t> of_full_layers(Draft& d, std::string_view old_key, std::string_view key,
                                      const std::vector<bool>& windows) {
  if (const auto found = d.config.find_count(old_key)) return found;
  const Json* layers = d.config.find("per_layer_config");
  if (layers == nullptr || layers->object() == nullptr) return std::nullopt;
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    const Json* own = windows[layer] ? nullptr : layers->find(fmt::format("{}", layer));
    const Json* value = own == nullptr ? nullptr : own->find(key);
    if (value == nullptr) continue;
    if (value->number() == nullptr || !value->number()->integer || *value->number()->integer < 1)
      throw Error(Errc::bad_file, fmt::format("config.json: per_layer_config: {} is {}", key, value->shown()));
    return *value->number()->integer;
  }
  return std::nullopt;
}

void gemma4_keys(Draft& d, const std::vector<bool>& windows, int64_t n_shared) {
  Config& c = d.config;
  const int64_t window_dim = c.count("head_dim"),
                full_dim = of_full_layers(d, "global_head_dim", "head_dim", windows).value_or(0);
  if (full_dim < 2 || full_dim > 65536)
    throw Error(
        Errc::bad_file,
        fmt::format("config.json: needs global_head_dim, or head_dim of full layers in per_layer_config; found {}",
                    full_dim));
  d.count("attention.key_length", full_dim);
  d.count("attention.value_length", full_dim);
  d.count("attention.key_length_swa", window_dim);
  d.count("attention.value_length_swa", window_dim);
  d.count("rope.dimension_count", full_dim);
  d.count("rope.dimension_count_swa", window_dim);
  d.count("attention.sliding_window", c.count("sliding_window"));
  d.count("attention.shared_kv_layers", n_shared);
  d.count("embedding_length_per_layer_input", c.find_count("hidden_size_per_layer_input").value_or(0));
  d.flags("attention.sliding_window_pattern", windows);
  if (const auto cap = c.find_number("final_logit_softcapping"); cap && *cap != 0)
    d.number("final_logit_softcapping", *cap);
  if (const auto width = c.find_count("moe_intermediate_size"); width && c.flag("enable_moe_block", false))
    d.count("expert_feed_forward_length", *width);
  if (const auto full = of_full_layers(d, "num_global_key_value_heads", "num_key_value_heads", windows)) {
    std::vector<int64_t> heads;
    for (const bool is_window : windows) heads.push_back(is_window ? d.n_kv_heads : *full);
    d.counts("attention.head_count_kv", heads);
  }
  if (c.flag("use_double_wide_mlp", false)) {
    std::vector<int64_t> widths(windows.size(), c.count("intermediate_size"));
    for (size_t layer = windows.size() - static_cast<size_t>(n_shared); layer < windows.size(); ++layer)
      widths[layer] *= 2;
    d.counts("feed_forward_length", widths);
  }
  gemma4_rope(d, full_dim);
}

void gemma4(Draft& d) {
  Config& c = d.config;
  parts::sizes(d, {.has_experts = c.flag("enable_moe_block", false)});
  parts::rope(d, {.local_theta = 10000, .known_type = "proportional"});
  const std::vector<bool> windows = parts::window_layers(d, [](int64_t layer) { return layer % 6 != 5; });
  const int64_t n_shared = c.count("num_kv_shared_layers");
  if (n_shared >= d.n_layers)
    throw Error(Errc::bad_file,
                fmt::format("config.json: num_kv_shared_layers is {} of {} layers", n_shared, d.n_layers));
  gemma4_keys(d, windows, n_shared);
  c.expect("hidden_activation", {"gelu_pytorch_tanh"});
  c.expect_flag("attention_bias", false);
  if (!c.flag("tie_word_embeddings", true))
    throw Error(Errc::unsupported, "config.json: tie_word_embeddings is false; gemma4 files have no head of their own");
  for (const std::string_view key : {"vocab_size_per_layer_input", "use_bidirectional_attention", "attention_k_eq_v"})
    c.mark_read(key);
  d.leave("lm_head.weight");
  const bool same = c.flag("attention_k_eq_v", false);
  std::vector<bool> has_keys(windows.size()), has_values(windows.size());
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    has_keys[layer] = layer < windows.size() - static_cast<size_t>(n_shared);
    has_values[layer] = has_keys[layer] && (windows[layer] || !same);
  }
  d.take(kGemma4Ends);
  d.take(kGemma4);
  d.take(kGemma4Keys, has_keys);
  d.take(kGemma4Values, has_values);
  d.take(rules::kGatedFfn);
  if (c.find_count("hidden_size_per_layer_input").value_or(0) > 0) d.take(kGemma4Inputs);
  if (c.flag("enable_moe_block", false)) d.take(kGemma4Experts);
  // The published folders still have keys and values of layers that read another's.
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    if (has_keys[layer]) continue;
    for (const char* part : {"k_proj.weight", "v_proj.weight", "k_norm.weight"})
      d.leave(fmt::format("model.layers.{}.self_attn.{}", layer, part));
  }
}

constexpr std::string_view kGemmaDefaults =
    R"({"vocab_size":256000,"hidden_size":3072,"intermediate_size":24576,"num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":16,
        "head_dim":256,"max_position_embeddings":8192,"rms_norm_eps":1e-6,"tie_word_embeddings":true})";
constexpr std::string_view kGemma2Defaults =
    R"({"vocab_size":256000,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,
        "head_dim":256,"max_position_embeddings":8192,"rms_norm_eps":1e-6,"tie_word_embeddings":true,"query_pre_attn_scalar":256,"sliding_window":4096,
        "attn_logit_softcapping":50.0,"final_logit_softcapping":30.0})";
constexpr std::string_view kGemma3Defaults =
    R"({"vocab_size":262208,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,
        "head_dim":256,"max_position_embeddings":131072,"rms_norm_eps":1e-6,"tie_word_embeddings":true,"query_pre_attn_scalar":256,"sliding_window":4096,
        "rope_theta":1000000.0})";
constexpr std::string_view kGemma4Defaults = R"({"tie_word_embeddings":true,"rms_norm_eps":1e-6})";

}  // namespace

std::vector<Family> gemma_families() {
  using enum VocabularyKind;
  return {
      {"gemma", {"GemmaForCausalLM"}, kGemmaDefaults, pieces, gemma, {.no_space_prefix = true}},
      {"gemma2", {"Gemma2ForCausalLM"}, kGemma2Defaults, pieces, gemma2, {.no_space_prefix = true}},
      {"gemma3",
       {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
       kGemma3Defaults,
       pieces,
       gemma3,
       {.no_space_prefix = true, .cuts_vocabulary = true}},
      {"gemma4",
       {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"},
       kGemma4Defaults,
       merged_pieces,
       gemma4,
       {.no_space_prefix = true, .cuts_vocabulary = true}},
      {"gemma-embedding",
       {"Gemma3TextModel"},
       kGemma3Defaults,
       pieces,
       gemma_embedding,
       {.no_space_prefix = true, .cuts_vocabulary = true}},
  };
}

}  // namespace assay::converting
