// Llama and what differs from it by a key or two: the architecture turns neighbours, so that rows of queries and keys
// are re-ordered.
#include <fmt/format.h>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {
namespace {

void llama(Draft& d) {
  parts::llama_keys(d);
  parts::derive_head_dim(d);
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttentionPairs);
  d.take(rules::kGatedFfn);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
  parts::check_bias(d, "attention_bias", "blk.0.attn_output.bias");
  parts::check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

void mistral(Draft& d) {
  parts::llama_keys(d);
  parts::derive_head_dim(d);
  parts::note_window(d, "sliding_window");
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttentionPairs);
  d.take(rules::kGatedFfn);
}

void mixtral(Draft& d) {
  parts::llama_keys(d);
  parts::note_window(d, "sliding_window");
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttentionPairs);
  d.take(rules::kSparseMoe);
}

void smollm3(Draft& d) {
  parts::llama_keys(d);
  parts::require_no_window(d);
  const Json* turns = d.config.find("no_rope_layers");
  if (turns != nullptr && turns->array() != nullptr) {
    for (size_t layer = 0; layer < turns->array()->size(); ++layer) {
      const bool turns_here = number_of((*turns->array())[layer], "no_rope_layers") != 0;
      if (turns_here == ((layer + 1) % 4 == 0)) {
        throw Error(Errc::unsupported, fmt::format("config.json: no_rope_layers is {} for layer {}; smollm3 files have "
                                                   "no key for it, and every fourth layer "
                                                   "does not turn",
                                                   turns_here ? 1 : 0, layer));
      }
    }
  }
  if (d.config.find_count("no_rope_layer_interval").value_or(4) != 4) {
    throw Error(Errc::unsupported,
                "config.json: no_rope_layer_interval is not 4, and smollm3 files have no key for it");
  }
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttentionPairs);
  d.take(rules::kGatedFfn);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
  parts::check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

void arcee(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  parts::derive_head_dim(d);
  d.count("vocab_size", d.config.count("vocab_size"));
  d.count("rope.dimension_count", parts::head_dim(d));
  parts::rope(d);
  d.config.expect("hidden_act", {"relu2"});
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttentionPairs);
  d.take(rules::kPlainFfn);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
  parts::check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

// Mistral Small 3 and Ministral 3: the second has YaRN, and queries that grow with the position.
void mistral3(Draft& d) {
  parts::llama_keys(d);
  parts::derive_head_dim(d);
  parts::note_window(d, "sliding_window");
  if (d.config.text("model_type") == "ministral3") {
    const Json* params = d.config.find("rope_parameters");
    const auto number = [&](std::string_view key) {
      const Json* value = params == nullptr ? nullptr : params->find(key);
      if (value == nullptr || value->is_null())
        throw Error(Errc::bad_file, fmt::format("config.json: rope_parameters needs {}", key));
      return number_of(*value, key);
    };
    d.number("rope.scaling.yarn_log_multiplier", number("mscale_all_dim"));
    d.number("attention.temperature_scale", number("llama_4_scaling_beta"));
  }
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttentionPairs);
  d.take(rules::kGatedFfn);
}

// Fused projections are those of its first release.
constexpr std::array kErnieFused = {
    Rule{"model.layers.{}.mlp.up_gate_proj.weight", "blk.{}.ffn_gate.weight", As::gate},
    Rule{"model.layers.{}.mlp.up_gate_proj.weight", "blk.{}.ffn_up.weight", As::up},
    Rule{"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
};

void ernie4_5(Draft& d) {
  parts::sizes(d);
  parts::derive_head_dim(d);
  parts::rope(d);
  d.config.expect("hidden_act", {"silu"});
  d.config.expect_flag("use_bias", false);
  d.take(rules::kEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  if (d.has("model.layers.0.mlp.up_gate_proj.weight")) {
    d.take(kErnieFused);
  } else {
    d.take(rules::kGatedFfn);
  }
}

// alpha, beta and eps of each layer's xIELU are numbers of its own; they become arrays.
void apertus(Draft& d) {
  parts::sizes(d);
  parts::key_lengths(d);
  d.count("vocab_size", d.config.count("vocab_size"));
  d.count("rope.dimension_count", parts::head_dim(d));
  parts::rope(d, {.llama3 = true});
  d.config.expect("hidden_act", {"xielu"});
  constexpr std::array kApertus = {
      Rule{"model.layers.{}.attention_layernorm.weight", "blk.{}.attn_norm.weight"},
      Rule{"model.layers.{}.feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"},
  };
  for (const std::string_view part : {"alpha_n", "alpha_p", "beta", "eps"}) {
    std::vector<float> all;
    for (int64_t layer = 0; layer < d.n_layers; ++layer) {
      const std::string name = fmt::format("model.layers.{}.mlp.act_fn.{}", layer, part);
      const std::vector<float> values = d.values_of(name);
      if (values.size() != 1)
        throw Error(Errc::bad_file, fmt::format("{} has {} values; needs one", name, values.size()));
      all.push_back(values.front());
    }
    d.set_plain(fmt::format("xielu.{}", part), all);
  }
  d.take(rules::kEnds);
  d.take(kApertus);
  d.take(rules::kAttention);
  d.take(rules::kHeadNorms);
  d.take(rules::kPlainFfn);
  parts::check_bias(d, "attention_bias", "blk.0.attn_q.bias");
  parts::check_bias(d, "mlp_bias", "blk.0.ffn_up.bias");
}

constexpr std::string_view kLlamaDefaults =
    R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"hidden_act":"silu",
        "max_position_embeddings":2048,"rms_norm_eps":1e-6,"rope_theta":10000.0})";
constexpr std::string_view kMistralDefaults =
    R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
        "hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-6,"rope_theta":10000.0,"sliding_window":4096})";
constexpr std::string_view kMixtralDefaults =
    R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
        "hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":1000000.0,"num_experts_per_tok":2,"num_local_experts":8})";
constexpr std::string_view kMinistral3Defaults =
    R"({"vocab_size":131072,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":34,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,
        "hidden_act":"silu","max_position_embeddings":262144,"rms_norm_eps":1e-5,"rope_theta":1000000.0})";

}  // namespace

std::vector<Family> llama_families() {
  using enum VocabularyKind;
  return {
      {"llama",
       {"LlamaForCausalLM", "LLaMAForCausalLM"},
       kLlamaDefaults,
       pieces_or_bpe,
       llama,
       {.reads_prefix_space = true}},
      {"llama", {"MistralForCausalLM"}, kMistralDefaults, pieces_or_bpe, mistral, {.reads_prefix_space = true}},
      {"llama", {"MixtralForCausalLM"}, kMixtralDefaults, pieces_or_bpe, mixtral, {.reads_prefix_space = true}},
      {"mistral3",
       {"Ministral3ForCausalLM"},
       kMinistral3Defaults,
       pieces_or_bpe,
       mistral3,
       {.reads_prefix_space = true}},
      {"mistral3",
       {"Mistral3ForConditionalGeneration"},
       kMistralDefaults,
       pieces_or_bpe,
       mistral3,
       {.reads_prefix_space = true, .model_types = {"mistral", "ministral3"}}},
      {"smollm3", {"SmolLM3ForCausalLM"}, {}, pieces_or_bpe, smollm3, {.reads_prefix_space = true}},
      {"arcee", {"ArceeForCausalLM"}, {}, pieces_or_bpe, arcee, {.reads_prefix_space = true}},
      {"apertus", {"ApertusForCausalLM"}, {}, pieces_or_bpe, apertus, {.reads_prefix_space = true}},
      {"ernie4_5",
       {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"},
       R"({"tie_word_embeddings":true,"rope_theta":500000.0,"rms_norm_eps":1e-5})",
       pieces_or_bpe,
       ernie4_5,
       {.reads_prefix_space = true}},
  };
}

}  // namespace assay::converting
