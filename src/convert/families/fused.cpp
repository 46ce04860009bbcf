// Families whose projections stand fused in the checkpoint or the file: taken as they are, turned, or sorted into
// queries, keys and values.
#include <fmt/format.h>

#include <cmath>

#include "assay/error.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {
namespace {

constexpr std::array kPhi3 = {
    Rule{"model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
    Rule{"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    Rule{"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
};

void long_rope(Draft& d, const Json& scaling, int64_t original, int64_t rope_dim) {
  std::string_view type = scaling.text("rope_type");
  if (type.empty()) type = scaling.text("type");
  if (type.empty() || type == "default") return;
  if (type != "longrope" && type != "su")
    throw Error(Errc::unsupported,
                fmt::format("config.json: rope scaling \"{}\" is not known for {}", type, d.architecture()));
  const Json* magnitude = scaling.find("short_mscale");  // phimoe's, which states what phi3 computes
  d.number("rope.scaling.attn_factor",
           magnitude != nullptr ? number_of(*magnitude, "short_mscale")
                                : parts::long_rope_factor(d.config.count("max_position_embeddings"), original));
  parts::long_factors(d, scaling, rope_dim / 2);
}

// What all Phi-3 models have: sizes and rotation.
void phi3_keys(Draft& d) {
  parts::sizes(d);
  Config& c = d.config;
  const Json* params = c.find_any({"rope_parameters", "rope_scaling"});
  static const Json kNone;
  if (params == nullptr) params = &kNone;
  const auto own = [&](std::string_view key) { return params->find(key) != nullptr ? params->find(key) : c.find(key); };
  const Json* original = own("original_max_position_embeddings");
  const int64_t n_original = original == nullptr ? c.count("max_position_embeddings")
                                                 : whole_of(number_of(*original, "original_max_position_embeddings"),
                                                            "original_max_position_embeddings");
  const Json* partial = own("partial_rotary_factor");
  const double share =
      partial == nullptr ? 1.0 : parts::share(number_of(*partial, "partial_rotary_factor"), "partial_rotary_factor");
  const int64_t rope_dim = static_cast<int64_t>(share * static_cast<double>(c.count("hidden_size"))) / d.n_heads;
  d.count("rope.scaling.original_context_length", n_original);
  d.count("rope.dimension_count", rope_dim);
  const Json* theta = own("rope_theta");
  d.number("rope.freq_base", theta == nullptr ? 10000.0 : number_of(*theta, "rope_theta"));
  const auto window = c.find_count("sliding_window");
  d.count("attention.sliding_window", window.value_or(0));
  if (window && *window < c.count("max_position_embeddings")) {
    d.notes.push_back(fmt::format(
        "config.json: sliding_window = {} is written; other readers of {} files let every token see all before it",
        *window, d.architecture()));
  }
  c.expect("hidden_act", {"silu"});
  long_rope(d, *params, n_original, rope_dim);
}

void phi3(Draft& d) {
  phi3_keys(d);
  d.config.expect_flag("attention_bias", false);
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(kPhi3);
}

constexpr std::array kPhiMoe = {
    Rule{"lm_head.bias", "output.bias", As::plain, true},
};

void phimoe(Draft& d) {
  phi3_keys(d);
  Config& c = d.config;
  if (const auto jitter = c.find_number("router_jitter_noise"); jitter && *jitter != 0.01)
    throw Error(Errc::unsupported,
                fmt::format("config.json: router_jitter_noise is {}; phimoe files have no key for it, and 0.01 is what "
                            "readers take",
                            *jitter));
  if (c.count("num_experts_per_tok") != 2)
    throw Error(Errc::unsupported, "config.json: num_experts_per_tok is not 2, of which sparsemixer routers are");
  c.mark_read("input_jitter_noise");
  d.take(rules::kEnds);
  d.take(kPhiMoe);
  d.take(rules::kNormsBefore);
  d.take(rules::kNormBiases);
  d.take(rules::kAttention);
  d.take(rules::kSparseMoe);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias", false);
  parts::check_bias(d, "lm_head_bias", "output.bias", false);
}

constexpr std::array kPhi2 = {
    Rule{"lm_head.weight", "output.weight"},
    Rule{"lm_head.bias", "output.bias"},
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.final_layernorm.weight", "output_norm.weight"},
    Rule{"model.final_layernorm.bias", "output_norm.bias"},
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    Rule{"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    Rule{"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    Rule{"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    Rule{"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    Rule{"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    Rule{"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    Rule{"model.layers.{}.self_attn.dense.weight", "blk.{}.attn_output.weight"},
    Rule{"model.layers.{}.self_attn.dense.bias", "blk.{}.attn_output.bias"},
    Rule{"model.layers.{}.mlp.fc1.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.fc1.bias", "blk.{}.ffn_up.bias"},
    Rule{"model.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.layers.{}.mlp.fc2.bias", "blk.{}.ffn_down.bias"},
};

void phi2(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  const int64_t width = c.count("hidden_size");
  if (d.n_kv_heads != d.n_heads)
    throw Error(Errc::unsupported,
                "config.json: num_key_value_heads is not num_attention_heads; phi2 files say that they are the same");
  if (c.count("intermediate_size") != 4 * width)
    throw Error(Errc::unsupported,
                "config.json: intermediate_size is not 4 times hidden_size; phi2 files say that it is");
  d.count(
      "rope.dimension_count",
      static_cast<int64_t>(parts::rotary_share(d, {"partial_rotary_factor"}) * static_cast<double>(width)) / d.n_heads);
  parts::require_usual_base(d, "rope_theta");
  c.expect("hidden_act", {"gelu_new", "gelu_pytorch_tanh"});
  c.expect_flag("qk_layernorm", false);
  d.head.set("tokenizer.ggml.add_bos_token", gguf::Value::of(false));
  d.take(kPhi2);
}

constexpr std::array kGlm4 = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.post_self_attn_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    Rule{"model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    Rule{"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
};

void glm4(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d);
  d.count("rope.dimension_count", static_cast<int64_t>(parts::rotary_share(d, {"partial_rotary_factor"}, 0.5) *
                                                       static_cast<double>(parts::head_dim(d))));
  d.config.expect("hidden_act", {"silu"});
  d.take(rules::kEnds);
  d.take(kGlm4);
  d.take(rules::kAttention);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

constexpr std::array kGptNeox = {
    Rule{"gpt_neox.embed_in.weight", "token_embd.weight"},
    Rule{"gpt_neox.final_layer_norm.weight", "output_norm.weight"},
    Rule{"gpt_neox.final_layer_norm.bias", "output_norm.bias"},
    Rule{"embed_out.weight", "output.weight", As::tied},
    Rule{"gpt_neox.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"gpt_neox.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    Rule{"gpt_neox.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    Rule{"gpt_neox.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
    Rule{"gpt_neox.layers.{}.attention.query_key_value.weight", "blk.{}.attn_qkv.weight", As::heads_apart},
    Rule{"gpt_neox.layers.{}.attention.query_key_value.bias", "blk.{}.attn_qkv.bias", As::heads_apart},
    Rule{"gpt_neox.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight"},
    Rule{"gpt_neox.layers.{}.attention.dense.bias", "blk.{}.attn_output.bias"},
    Rule{"gpt_neox.layers.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight"},
    Rule{"gpt_neox.layers.{}.mlp.dense_h_to_4h.bias", "blk.{}.ffn_up.bias"},
    Rule{"gpt_neox.layers.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight"},
    Rule{"gpt_neox.layers.{}.mlp.dense_4h_to_h.bias", "blk.{}.ffn_down.bias"},
};

void gptneox(Draft& d) {
  Config& c = d.config;
  c.mark_read("num_key_value_heads");  // every head has its own
  parts::sizes(d, {.has_kv_heads = false});
  parts::require_usual_base(d, "rotary_emb_base");
  d.count("rope.dimension_count", static_cast<int64_t>(parts::rotary_share(d, {"rotary_pct"}) *
                                                       static_cast<double>(c.count("hidden_size") / d.n_heads)));
  d.flag("use_parallel_residual", c.flag("use_parallel_residual", true));
  c.expect("hidden_act", {"gelu", "gelu_fast"});
  c.expect_flag("attention_bias", true);
  d.leave("*.attention.bias");
  d.take(kGptNeox);
}

// Its matrices are the other way round: they multiply from the right.
constexpr std::array kGpt2Names = {
    Rule{"transformer.wte.weight", "token_embd.weight"},
    Rule{"transformer.wpe.weight", "position_embd.weight"},
    Rule{"transformer.ln_f.weight", "output_norm.weight"},
    Rule{"transformer.ln_f.bias", "output_norm.bias"},
    Rule{"transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight"},
    Rule{"transformer.h.{}.ln_1.bias", "blk.{}.attn_norm.bias"},
    Rule{"transformer.h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight", As::turned},
    Rule{"transformer.h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias"},
    Rule{"transformer.h.{}.attn.c_proj.weight", "blk.{}.attn_output.weight", As::turned},
    Rule{"transformer.h.{}.attn.c_proj.bias", "blk.{}.attn_output.bias"},
    Rule{"transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight"},
    Rule{"transformer.h.{}.ln_2.bias", "blk.{}.ffn_norm.bias"},
    Rule{"transformer.h.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight", As::turned},
    Rule{"transformer.h.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias"},
    Rule{"transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", As::turned},
    Rule{"transformer.h.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias"},
};

void gpt2(Draft& d) {
  Config& c = d.config;
  const int64_t width = c.count("n_embd");
  parts::layers_and_heads(d, "n_layer", "n_head");
  d.is_tied = true;
  d.count("block_count", d.n_layers);
  const Json* context = c.find_any({"n_ctx", "n_positions"});
  if (context == nullptr) throw Error(Errc::bad_file, "config.json: needs n_positions");
  d.count("context_length", c.has("n_ctx") ? c.count("n_ctx") : c.count("n_positions"));
  d.count("embedding_length", width);
  d.count("feed_forward_length", 4 * width);
  d.count("attention.head_count", d.n_heads);
  d.number("attention.layer_norm_epsilon", c.number("layer_norm_epsilon"));
  if (const auto inner = c.find_count("n_inner"); inner && *inner != 4 * width) {
    throw Error(Errc::unsupported, "config.json: n_inner is not 4 times n_embd; gpt2 files say that it is");
  }
  c.expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  c.expect_flag("scale_attn_weights", true);
  c.expect_flag("scale_attn_by_inverse_layer_idx", false);
  c.mark_read("reorder_and_upcast_attn");
  if (!c.flag("tie_word_embeddings", true))
    throw Error(Errc::unsupported, "config.json: tie_word_embeddings is false; gpt2 files have no head of their own");
  for (const char* none : {"lm_head.weight", "*.attn.bias", "*.attn.masked_bias"}) d.leave(none);
  d.take(kGpt2Names);
}

constexpr std::array kFalcon = {
    Rule{"transformer.word_embeddings.weight", "token_embd.weight"},
    Rule{"transformer.ln_f.weight", "output_norm.weight"},
    Rule{"transformer.ln_f.bias", "output_norm.bias"},
    Rule{"lm_head.weight", "output.weight", As::tied},
    Rule{"transformer.h.{}.self_attention.query_key_value.weight", "blk.{}.attn_qkv.weight", As::groups_apart},
    Rule{"transformer.h.{}.self_attention.dense.weight", "blk.{}.attn_output.weight"},
    Rule{"transformer.h.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight"},
    Rule{"transformer.h.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight"},
};
constexpr std::array kFalconNorms = {
    Rule{"transformer.h.{}.ln_attn.weight", "blk.{}.attn_norm_2.weight"},
    Rule{"transformer.h.{}.ln_attn.bias", "blk.{}.attn_norm_2.bias"},
    Rule{"transformer.h.{}.ln_mlp.weight", "blk.{}.attn_norm.weight"},
    Rule{"transformer.h.{}.ln_mlp.bias", "blk.{}.attn_norm.bias"},
};
constexpr std::array kFalconNorm = {
    Rule{"transformer.h.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"transformer.h.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
};

void falcon(Draft& d) {
  Config& c = d.config;
  const bool is_new = c.flag("new_decoder_architecture", false);
  parts::layers_and_heads(d, c.has("num_hidden_layers") ? "num_hidden_layers" : "n_layer",
                          c.has("num_attention_heads") ? "num_attention_heads" : "n_head");
  d.is_tied = c.flag("tie_word_embeddings", true);
  const char* kv_key = c.has("num_kv_heads") ? "num_kv_heads" : "n_head_kv";
  d.n_kv_heads = !is_new && c.flag("multi_query", true) ? 1 : c.find_count(kv_key).value_or(d.n_heads);
  c.mark_read("num_kv_heads");
  const int64_t width = c.count("hidden_size");
  d.count("context_length", 2048);  // config.json does not say it
  d.text("tensor_data_layout", "jploski");
  d.count("embedding_length", width);
  d.count("feed_forward_length", 4 * width);
  d.count("block_count", d.n_layers);
  d.count("attention.head_count", d.n_heads);
  d.count("attention.head_count_kv", d.n_kv_heads);
  d.number("attention.layer_norm_epsilon", c.number("layer_norm_epsilon"));
  parts::require_usual_base(d, "rope_theta");
  c.mark_read("max_position_embeddings");
  if (const auto inner = c.find_count("ffn_hidden_size"); inner && *inner != 4 * width) {
    throw Error(Errc::unsupported,
                "config.json: ffn_hidden_size is not 4 times hidden_size; falcon files say that it is");
  }
  c.expect("activation", {"gelu"});
  c.expect_flag("alibi", false);
  c.expect_flag("bias", false);
  c.expect_flag("parallel_attn", true);
  c.mark_read("num_ln_in_parallel_attn");
  d.take(kFalcon);
  if (is_new && d.has("transformer.h.0.ln_attn.weight")) {
    d.take(kFalconNorms);
  } else {
    d.take(kFalconNorm);
  }
}

constexpr std::string_view kPhi3Defaults =
    R"({"vocab_size":32064,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,"num_attention_heads":32,"hidden_act":"silu",
        "max_position_embeddings":4096,"original_max_position_embeddings":4096,"rms_norm_eps":1e-5,"rope_theta":10000.0})";

constexpr std::string_view kPhiMoeDefaults =
    R"({"vocab_size":32064,"hidden_size":4096,"intermediate_size":6400,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"hidden_act":"silu",
        "max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":1000000.0,"num_experts_per_tok":2,"num_local_experts":16,"router_jitter_noise":0.01})";

}  // namespace

std::vector<Family> fused_families() {
  using enum VocabularyKind;
  constexpr std::string_view kRows = "<|endoftext|>";
  return {
      {"phi3", {"Phi3ForCausalLM"}, kPhi3Defaults, pieces_and_added, phi3},
      {"phimoe", {"PhiMoEForCausalLM", "PhimoeForCausalLM"}, kPhiMoeDefaults, pieces_and_added, phimoe},
      {"phi2", {"PhiForCausalLM"}, R"({"layer_norm_eps":1e-5})", bpe, phi2},
      {"glm4",
       {"Glm4ForCausalLM"},
       {},
       bpe,
       glm4,
       {.special_texts = {{"eos", kRows}, {"eot", "<|user|>"}, {"unk", kRows}, {"bos", kRows}}}},
      {"gptneox", {"GPTNeoXForCausalLM"}, R"({"layer_norm_eps":1e-5})", bpe, gptneox},
      {"gpt2", {"GPT2LMHeadModel"}, R"({"layer_norm_epsilon":1e-5})", bpe, gpt2},
      {"falcon", {"FalconForCausalLM", "RWForCausalLM"}, R"({"layer_norm_epsilon":1e-5})", bpe, falcon},
  };
}

}  // namespace assay::converting
