// Llama, and what shares its graph and name in GGUF: Mistral, SmolLM, TinyLlama, ... A pre-norm decoder with grouped queries, interleaved
// RoPE and SwiGLU; biases and a head of its own where the file has them. Source: Touvron et al. 2023, arXiv:2302.13971.
#include <cmath>

#include "model/arch/list.h"
#include "model/rope_scaling.h"
#include "ops/activation.h"

namespace assay::model::arch {

ops::ValueId llama(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Hparams& h = input.hparams;
  const std::vector<float> rope_factors = p.weights().optional_values("rope_freqs.weight", h.rope_dim / 2);  // Llama 3.1 and later
  const ops::RopeId rope = p.add_rope(make_rope(h.rope_dim, h.rope_theta, true, read_rope_scaling(input.keys, h), rope_factors));
  const int64_t window = input.keys.find_count("attention.sliding_window", 0, kContextMax).value_or(0);  // Mistral 7B 0.1
  const double attention_scale = 1.0 / std::sqrt(static_cast<double>(h.head_dim));

  ValueId x = p.embed("token_embd", input.vocab_size, h.d_model, 1.0);
  for (int32_t layer = 0; layer < h.n_layers; ++layer) {
    p.begin_layer(layer, {h.n_kv_heads, h.head_dim, window});
    const ValueId a = p.rms_norm("attn_norm", x, h.norm_eps);
    const ValueId q = p.rope("attn_q_rope", p.linear("attn_q", a, h.n_heads * h.head_dim, Bias::optional), rope, h.head_dim);
    const ValueId k = p.rope("attn_k_rope", p.linear("attn_k", a, h.n_kv_heads * h.head_dim, Bias::optional), rope, h.head_dim);
    const ValueId v = p.linear("attn_v", a, h.n_kv_heads * h.head_dim, Bias::optional);
    p.kv_store("kv_store", k, v);
    ValueId o = p.attention("attention", q, h.n_heads, {attention_scale});
    if (layer + 1 == h.n_layers) {  // what follows concerns only the tokens whose logits are wanted
      o = p.select_outputs("attention_selected", o);
      x = p.select_outputs("residual_selected", x);
    }
    x = p.add("attn_residual", x, p.linear("attn_output", o, h.d_model, Bias::optional));
    const ValueId f = p.rms_norm("ffn_norm", x, h.norm_eps);
    const ValueId gate = p.linear("ffn_gate", f, h.d_ff, Bias::optional);
    const ValueId up = p.linear("ffn_up", f, h.d_ff, Bias::optional);
    const ValueId down = p.linear("ffn_down", p.gate("ffn_act", gate, up, ops::ActivationFunction::silu), h.d_model, Bias::optional);
    x = p.add("residual", x, down);
  }
  p.end_layers();
  x = p.rms_norm("output_norm", x, h.norm_eps);
  const ops::WeightId head = p.weights().optional_matrix("output.weight", input.vocab_size, h.d_model);
  const ops::WeightId tied = p.weights().matrix("token_embd.weight", input.vocab_size, h.d_model);
  return p.linear("output", x, input.vocab_size, head != ops::kNone ? head : tied);
}

}  // namespace assay::model::arch
