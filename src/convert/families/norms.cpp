// Families without RMS norms before a block: LayerNorm, or norms behind it.
#include <fmt/format.h>

#include "assay/error.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {
namespace {

void olmo2_keys(Draft& d, const parts::RopeOptions& options) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d, options);
  d.config.expect("hidden_act", {"silu"});
}

void olmo2_tensors(Draft& d) {
  d.take(rules::kEnds);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kNormsAfter);
  d.take(rules::kGatedFfn);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

void olmo2(Draft& d) {
  olmo2_keys(d, {});
  olmo2_tensors(d);
}

void olmo3(Draft& d) {
  olmo2_keys(d, {.local_theta = 0});
  d.count("attention.sliding_window", d.config.count("sliding_window"));
  d.flags("attention.sliding_window_pattern",
          parts::window_layers(d, [](int64_t layer) { return (layer + 1) % 4 != 0; }));
  olmo2_tensors(d);
}

void olmo(Draft& d) {
  parts::sizes(d);
  parts::rope(d);
  d.number("attention.layer_norm_epsilon", 1e-5);
  if (const auto clamp = d.config.find_number("clip_qkv")) d.number("attention.clamp_kqv", *clamp);
  d.config.expect("hidden_act", {"silu"});
  constexpr std::array kOlmoEnds = {
      Rule{"model.embed_tokens.weight", "token_embd.weight"},
      Rule{"lm_head.weight", "output.weight", As::tied},
  };
  d.take(kOlmoEnds);
  d.take(rules::kAttentionPairs);
  d.take(rules::kGatedFfn);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
}

// A window: five layers of four in LLLG, or what layer_types says.
void exaone4(Draft& d) {
  parts::sizes(d);
  parts::derive_head_dim(d);
  d.count("vocab_size", d.config.count("vocab_size"));
  parts::rope(d, {.llama3 = true});
  d.config.expect("hidden_act", {"silu"});
  d.config.mark_read("sliding_window_pattern");
  if (const auto window = d.config.find_count("sliding_window")) {
    d.count("attention.sliding_window", *window);
    d.flags("attention.sliding_window_pattern",
            parts::window_layers(d, [](int64_t layer) { return (layer + 1) % 4 != 0; }));
  } else {
    d.config.mark_read("layer_types");
  }
  d.take(rules::kEnds);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kNormsAfter);
  d.take(rules::kGatedFfn);
}

constexpr std::array kStarcoder2 = {
    Rule{"model.layers.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias", As::plain, true},
    Rule{"model.layers.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.layers.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias", As::plain, true},
};

void starcoder2(Draft& d) {
  parts::sizes(d);
  parts::rope(d);
  d.number("attention.layer_norm_epsilon", d.config.number("norm_epsilon"));
  parts::note_window(d, "sliding_window");
  d.config.expect("hidden_act", {"gelu_pytorch_tanh"});
  d.config.expect("norm_type", {"layer_norm"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kNormBiases);
  d.take(kStarcoder2);
  parts::check_bias(d, "use_bias", "blk.0.attn_q.bias", true);
  parts::check_bias(d, "use_bias", "blk.0.ffn_up.bias", true);
}

constexpr std::array kStablelmBiases = {
    Rule{"model.norm.bias", "output_norm.bias"},
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
};
constexpr std::array kStablelmSerial = {
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    Rule{"model.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
};

// Norms of single heads, one below the other.
void stack_norms(Draft& d, std::string_view from, std::string_view to, int64_t n_heads) {
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    std::vector<Slice> slices;
    int64_t width = 0;
    for (int64_t head = 0; head < n_heads; ++head) {
      const StoredTensor& t = d.need(fmt::format("model.layers.{}.self_attn.{}.norms.{}.weight", layer, from, head));
      if (t.shape.size() != 1 || (head > 0 && t.cols() != width))
        throw Error(Errc::bad_file, fmt::format("{} has another shape than the norm of head 0", t.name));
      width = t.cols();
      slices.push_back({.tensor = &t, .n_rows = 1});
    }
    d.add(fmt::format("blk.{}.{}.weight", layer, to), {n_heads, width}, std::move(slices));
  }
}

void stablelm(Draft& d) {
  parts::sizes(d, {.has_experts = false});
  d.number("attention.layer_norm_epsilon",
           number_of(*d.config.find_any({"layer_norm_eps", "norm_eps"}), "layer_norm_eps"));
  parts::require_usual_base(d, "rope_theta");
  d.count("rope.dimension_count", static_cast<int64_t>(parts::rotary_share(d, {"partial_rotary_factor", "rope_pct"}) *
                                                       static_cast<double>(d.config.count("hidden_size") / d.n_heads)));
  d.flag("use_parallel_residual", d.config.flag("use_parallel_residual", true));
  d.config.expect("hidden_act", {"silu"});
  d.take(rules::kEnds);
  d.take(kStablelmBiases);
  d.take(rules::kAttention);
  if (!d.config.flag("use_parallel_residual", true)) d.take(kStablelmSerial);
  if (d.config.flag("qk_layernorm", false)) {
    stack_norms(d, "q_layernorm", "attn_q_norm", d.n_heads);
    stack_norms(d, "k_layernorm", "attn_k_norm", d.n_kv_heads);
  }
  d.take(rules::kGatedFfn);
  parts::check_bias(d, "use_qkv_bias", "blk.0.attn_q.bias");
}

constexpr std::array kNemotronEnds = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.norm.weight", "output_norm.weight", As::plus_one},
    Rule{"lm_head.weight", "output.weight", As::tied},
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", As::plus_one},
    Rule{"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", As::plus_one},
};

void nemotron(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::rope(d, {.scaling = false});
  const double eps = number_of(*d.config.find_any({"norm_eps"}), "norm_eps");
  d.number("attention.layer_norm_rms_epsilon", eps);
  d.number("attention.layer_norm_epsilon", eps);
  d.count("vocab_size", d.config.count("vocab_size"));
  d.count("rope.dimension_count",
          static_cast<int64_t>(parts::rotary_share(d, {"partial_rotary_factor", "rope_percent"}) *
                               static_cast<double>(parts::head_dim(d))));
  d.text("rope.scaling.type", "none");
  d.config.expect("hidden_act", {"relu2"});
  d.take(kNemotronEnds);
  d.take(rules::kNormBiases);
  d.take(rules::kAttention);
  d.take(rules::kPlainFfn);
}

void jais2(Draft& d) {
  parts::sizes(d);
  parts::derive_head_dim(d);
  parts::rope(d);
  d.count("rope.dimension_count", parts::head_dim(d));
  d.config.expect("hidden_act", {"relu2"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kNormBiases);
  d.take(rules::kAttention);
  d.take(rules::kPlainFfn);
}

constexpr std::array kCohere = {
    Rule{"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    Rule{"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", As::plain, true},
    Rule{"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", As::plain, true},
};

void cohere_keys(Draft& d) {
  d.number("logit_scale", d.config.number("logit_scale"));
  d.text("rope.scaling.type", "none");
  d.config.expect("hidden_act", {"silu"});
  d.config.expect_flag("attention_bias", false);
  d.leave("lm_head.weight");
}

void command_r(Draft& d) {
  parts::sizes(d);
  if (const auto context = d.config.find_count("model_max_length"))
    d.count("context_length", *context);  // what it was trained for
  parts::rope(d, {.scaling = false});
  cohere_keys(d);
  d.take(rules::kEnds);
  d.take(kCohere);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn);
}

void cohere2(Draft& d) {
  parts::sizes(d);
  parts::derive_head_dim(d);
  parts::rope(d, {.scaling = false});
  cohere_keys(d);
  d.count("attention.sliding_window", d.config.count("sliding_window"));
  d.count("vocab_size", d.config.count("vocab_size"));
  d.count("rope.dimension_count",
          static_cast<int64_t>(parts::share(d.config.find_number("rotary_pct").value_or(1.0), "rotary_pct") *
                               static_cast<double>(d.config.count("hidden_size") / d.n_heads)));
  const std::vector<bool> windows = parts::window_layers(d, [](int64_t layer) { return (layer + 1) % 4 != 0; });
  d.take(rules::kEnds);
  d.take(kCohere);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn);
  for (const char* key :
       {"layer_switch", "position_embedding_type", "rope_gptj", "order_of_interleaved_layers", "use_gated_activation",
        "use_parallel_block", "use_parallel_embedding", "use_embedding_sharing", "sliding_window_pattern"}) {
    d.config.mark_read(key);
  }
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    if (windows[layer] != ((layer + 1) % 4 != 0)) {
      throw Error(
          Errc::unsupported,
          "config.json: layer_types are not three windows and one full layer; cohere2 files have no key for them");
    }
  }
}

}  // namespace

std::vector<Family> norm_families() {
  using enum VocabularyKind;
  return {
      {"olmo", {"OlmoForCausalLM", "OLMoForCausalLM"}, {}, bpe, olmo},
      {"olmo2", {"Olmo2ForCausalLM"}, {}, bpe, olmo2},
      {"olmo2", {"Olmo3ForCausalLM"}, {}, bpe, olmo3},
      {"exaone4", {"Exaone4ForCausalLM"}, {}, bpe, exaone4},
      {"starcoder2", {"Starcoder2ForCausalLM"}, R"({"tie_word_embeddings":true})", bpe, starcoder2},
      {"stablelm",
       {"StableLmForCausalLM", "StableLMEpochForCausalLM"},
       R"({"layer_norm_eps":1e-5,"partial_rotary_factor":0.25})",
       bpe,
       stablelm},
      {"nemotron",
       {"NemotronForCausalLM"},
       R"({"norm_eps":1e-5,"hidden_act":"relu2"})",
       pieces_or_bpe,
       nemotron,
       {.special_ids = {{"padding", 0}, {"unknown", 1}}}},
      {"jais2", {"Jais2ForCausalLM"}, {}, bpe, jais2},
      {"command-r", {"CohereForCausalLM"}, R"({"tie_word_embeddings":true,"layer_norm_eps":1e-5})", bpe, command_r},
      {"cohere2", {"Cohere2ForCausalLM"}, R"({"tie_word_embeddings":true,"layer_norm_eps":1e-5})", bpe, cohere2},
  };
}

}  // namespace assay::converting
