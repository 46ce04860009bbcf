// Gemma 3, the text model: scaled embeddings, RMS norms before and after attention and FFN, norms on queries and keys, GELU, and layers that
// alternate between a sliding window (with its own rotation base) and full attention. The norms' "1 + weight" stands in the file's
// weights already. Source: Gemma 3 technical report, arXiv:2503.19786, and Hugging Face transformers' modeling_gemma3.
#include <fmt/format.h>

#include <cmath>

#include "assay/error.h"
#include "model/arch/list.h"
#include "model/rope_scaling.h"
#include "ops/activation.h"

namespace assay::model::arch {
namespace {

// Which layers look through the window: all but every 6th, or as attention.sliding_window_pattern says (the period, or a flag per layer).
std::vector<bool> windowed_layers(const KeyReader& keys, int64_t n_layers, bool has_window) {
  std::vector<bool> windowed(static_cast<size_t>(n_layers), false);
  if (!has_window) return windowed;
  const std::string key = keys.key("attention.sliding_window_pattern");
  const gguf::Entry* entry = keys.metadata().find(key);
  if (entry != nullptr && entry->type == gguf::ValueType::array) {
    windowed = keys.metadata().find_bools(key).value();
    if (windowed.size() != static_cast<size_t>(n_layers)) {
      throw Error(Errc::bad_file, fmt::format("{}: needs {} flags, found {}", key, n_layers, windowed.size()));
    }
    return windowed;
  }
  const int64_t period = keys.find_count("attention.sliding_window_pattern", 1, kLayersMax).value_or(6);
  for (int64_t layer = 0; layer < n_layers; ++layer) windowed[static_cast<size_t>(layer)] = layer % period < period - 1;
  return windowed;
}

// The 27B model alone, told by its 62 layers, scales by the width of a head as d_model has it; the file has no key for this.
double attention_scale(const Hparams& h) {
  const double width = h.n_layers == 62 ? static_cast<double>(h.d_model) / static_cast<double>(h.n_heads) : static_cast<double>(h.head_dim);
  return 1.0 / std::sqrt(width);
}

}  // namespace

ops::ValueId gemma3(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Hparams& h = input.hparams;
  const int64_t window = input.keys.find_count("attention.sliding_window", 0, kContextMax).value_or(0);
  const std::vector<bool> windowed = windowed_layers(input.keys, h.n_layers, window > 0);
  const double theta_windowed = input.keys.find_positive("rope.freq_base_swa", 1e30).value_or(10000.0);
  const ops::RopeId rope_windowed = p.add_rope(make_rope(h.rope_dim, theta_windowed, false, {}));
  const ops::RopeId rope_full = p.add_rope(make_rope(h.rope_dim, h.rope_theta, false, read_rope_scaling(input.keys, h)));
  const double scale = attention_scale(h);

  ValueId x = p.embed("token_embd", input.vocab_size, h.d_model, std::sqrt(static_cast<double>(h.d_model)));
  for (int32_t layer = 0; layer < h.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    const ops::RopeId rope = local ? rope_windowed : rope_full;
    p.begin_layer(layer, {h.n_kv_heads, h.head_dim, local ? window : 0});
    const ValueId a = p.rms_norm("attn_norm", x, h.norm_eps);
    const ValueId q = p.linear("attn_q", a, h.n_heads * h.head_dim, Bias::none);
    const ValueId k = p.linear("attn_k", a, h.n_kv_heads * h.head_dim, Bias::none);
    const ValueId v = p.linear("attn_v", a, h.n_kv_heads * h.head_dim, Bias::none);
    const ValueId q_rope = p.rope("attn_q_rope", p.rms_norm_heads("attn_q_norm", q, h.head_dim, h.norm_eps), rope, h.head_dim);
    const ValueId k_rope = p.rope("attn_k_rope", p.rms_norm_heads("attn_k_norm", k, h.head_dim, h.norm_eps), rope, h.head_dim);
    p.kv_store("kv_store", k_rope, v);
    ValueId o = p.attention("attention", q_rope, h.n_heads, {scale});
    if (layer + 1 == h.n_layers) {  // what follows concerns only the tokens whose logits are wanted
      o = p.select_outputs("attention_selected", o);
      x = p.select_outputs("residual_selected", x);
    }
    o = p.linear("attn_output", o, h.d_model, Bias::none);
    x = p.add("attn_residual", x, p.rms_norm("post_attention_norm", o, h.norm_eps));
    const ValueId f = p.rms_norm("ffn_norm", x, h.norm_eps);
    const ValueId gate = p.linear("ffn_gate", f, h.d_ff, Bias::none);
    const ValueId up = p.linear("ffn_up", f, h.d_ff, Bias::none);
    const ValueId down = p.linear("ffn_down", p.gate("ffn_act", gate, up, ops::ActivationFunction::gelu_tanh), h.d_model, Bias::none);
    x = p.add("residual", x, p.rms_norm("post_ffw_norm", down, h.norm_eps));
  }
  p.end_layers();
  x = p.rms_norm("output_norm", x, h.norm_eps);
  const ops::WeightId head = p.weights().optional_matrix("output.weight", input.vocab_size, h.d_model);
  const ops::WeightId tied = p.weights().matrix("token_embd.weight", input.vocab_size, h.d_model);
  return p.linear("output", x, input.vocab_size, head != ops::kNone ? head : tied);
}

}  // namespace assay::model::arch
