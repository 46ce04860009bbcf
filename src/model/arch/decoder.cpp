// See decoder.h.
#include "model/arch/decoder.h"

#include <fmt/format.h>

#include <cmath>

#include "assay/error.h"

namespace assay::model::arch {

using ops::ValueId;

ops::RopeId Decoder::rope(Pairing pairing) const {
  const std::vector<float> factors = p.weights().optional_values("rope_freqs.weight", h.rope_dim / 2);
  return p.add_rope(make_rope(h.rope_dim, h.rope_theta, pairing == Pairing::pairs, read_rope_scaling(input.keys, h), factors));
}

ops::RopeId Decoder::plain_rope(Pairing pairing, double theta) const {
  return p.add_rope(make_rope(h.rope_dim, theta, pairing == Pairing::pairs, {}));
}

double Decoder::rope_theta_windowed() const { return input.keys.find_positive("rope.freq_base_swa", 1e30).value_or(h.rope_theta); }

int64_t Decoder::window() const { return input.keys.find_count("attention.sliding_window", 0, kContextMax).value_or(0); }

std::vector<bool> Decoder::windowed_layers(int64_t period, bool last_full) const {
  std::vector<bool> windowed = input.keys.windowed_layers(h.n_layers, period, last_full);
  if (window() == 0) windowed.assign(windowed.size(), false);
  return windowed;
}

ValueId Decoder::embed(double scale) const { return p.embed("token_embd", input.vocab_size, h.d_model, scale); }

void Decoder::begin_layer(int32_t layer, int64_t window) const {
  if (h.n_heads == 0) input.keys.count("attention.head_count", 1, kHeadsMax);  // says that it is missing
  p.begin_layer(layer, {h.n_kv_heads, h.head_dim, window, h.value_dim});
}

ValueId Decoder::rms(std::string_view name, ValueId x) const {
  if (!(h.norm_eps > 0)) input.keys.positive("attention.layer_norm_rms_epsilon", 1.0);
  return p.rms_norm(name, x, h.norm_eps);
}

ValueId Decoder::rms_heads(std::string_view name, ValueId x) const {
  if (!(h.norm_eps > 0)) input.keys.positive("attention.layer_norm_rms_epsilon", 1.0);
  return p.rms_norm_heads(name, x, h.head_dim, h.norm_eps);
}

float Decoder::layer_norm_eps() const {
  if (!(h.layer_norm_eps > 0)) input.keys.positive("attention.layer_norm_epsilon", 1.0);
  return h.layer_norm_eps;
}

ValueId Decoder::layer_norm(std::string_view name, ValueId x) const { return p.layer_norm(name, x, layer_norm_eps(), NormWeights::required); }

Heads Decoder::project(ValueId x) const {
  const int64_t q = h.n_heads * h.head_dim, k = h.n_kv_heads * h.head_dim, v = h.n_kv_heads * h.value_dim;
  if (p.has("attn_qkv.weight")) {
    return {p.linear_rows("attn_q", "attn_qkv", x, q + k + v, 0, q), p.linear_rows("attn_k", "attn_qkv", x, q + k + v, q, k),
            p.linear_rows("attn_v", "attn_qkv", x, q + k + v, q + k, v)};
  }
  return {p.linear("attn_q", x, q, Bias::optional), p.linear("attn_k", x, k, Bias::optional), p.linear("attn_v", x, v, Bias::optional)};
}

Heads Decoder::turn(const Heads& heads, ops::RopeId rope) const {
  return {p.rope("attn_q_rope", heads.q, rope, h.head_dim), p.rope("attn_k_rope", heads.k, rope, h.head_dim), heads.v};
}

Heads Decoder::norm_heads(const Heads& heads) const { return {rms_heads("attn_q_norm", heads.q), rms_heads("attn_k_norm", heads.k), heads.v}; }

AttentionRule Decoder::scaled() const { return {1.0 / std::sqrt(static_cast<double>(h.head_dim))}; }

ValueId Decoder::attend(const Heads& heads, const AttentionRule& rule, std::initializer_list<ValueId*> residuals) const {
  p.kv_store("kv_store", heads.k, heads.v);
  ValueId o = p.attention("attention", heads.q, h.n_heads, rule);
  if (is_last(p.layer())) {  // what follows concerns only the tokens whose logits are wanted
    o = p.select_outputs("attention_selected", o);
    int i = 0;
    for (ValueId* x : residuals) *x = p.select_outputs(i++ == 0 ? "residual_selected" : fmt::format("residual_selected_{}", i), *x);
  }
  return p.linear("attn_output", o, h.d_model, Bias::optional);
}

int64_t Decoder::d_ff() const { return h.d_ff > 0 ? h.d_ff : input.keys.count("feed_forward_length", 1, kWidthMax); }

ValueId Decoder::ffn_gated(ValueId x, ops::ActivationFunction activation) const {
  const ValueId gate = p.linear("ffn_gate", x, d_ff(), Bias::optional);
  const ValueId up = p.linear("ffn_up", x, d_ff(), Bias::optional);
  return p.linear("ffn_down", p.gate("ffn_act", gate, up, activation), h.d_model, Bias::optional);
}

ValueId Decoder::ffn_fused(ValueId x, ops::ActivationFunction activation) const {
  const ValueId gate = p.linear_rows("ffn_gate", "ffn_up", x, 2 * d_ff(), 0, d_ff());
  const ValueId up = p.linear_rows("ffn_up", "ffn_up", x, 2 * d_ff(), d_ff(), d_ff());
  return p.linear("ffn_down", p.gate("ffn_act", gate, up, activation), h.d_model, Bias::optional);
}

ValueId Decoder::ffn_plain(ValueId x, ops::ActivationFunction activation) const {
  const ValueId up = p.linear("ffn_up", x, d_ff(), Bias::optional);
  return p.linear("ffn_down", p.activate("ffn_act", up, activation), h.d_model, Bias::optional);
}

ValueId Decoder::logits(ValueId x) const {
  const ops::WeightId head = p.weights().optional_matrix("output.weight", input.vocab_size, h.d_model);
  const ops::WeightId tied = p.weights().matrix("token_embd.weight", input.vocab_size, h.d_model);
  return p.linear("output", x, input.vocab_size, head != ops::kNone ? head : tied, p.weights().optional_vector("output.bias", input.vocab_size));
}

}  // namespace assay::model::arch
