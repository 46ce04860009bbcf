// Trinity (AFMoE): scaled embeddings, norms before and after attention and FFN, windows with rotation in three of four
// layers, what attention gives is multiplied by a sigmoid, experts by sigmoid beside a shared one after dense layers.
// Source: Hugging Face transformers, modeling_afmoe.
#include <cmath>

#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId afmoe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
  const int64_t lead = d.leading_dense();
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(4, true);
  const ops::RopeId rope = d.rope_windowed(Pairing::halves);
  ValueId x = d.embed(std::sqrt(static_cast<double>(d.h.d_model)));
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    const ValueId n = d.rms("attn_norm", x);
    Heads heads = d.norm_heads(d.project(n));
    if (local) heads = d.turn(heads, rope);
    ValueId gate = p.linear("attn_gate", n, d.n_heads() * d.h.value_dim, Bias::optional);
    const ValueId attended = d.attend_heads(heads, d.scaled(), {&x, &gate});
    const ValueId o = d.attn_output(p.gate("attn_gated", gate, attended, ops::ActivationFunction::sigmoid));
    x = p.add("attn_residual", x, d.rms("post_attention_norm", o));
    const ValueId f = d.rms("ffn_norm", x);
    const ValueId all = layer < lead ? d.ffn_gated(f, ops::ActivationFunction::silu) : d.mixture(f, rule);
    x = p.add("residual", x, d.rms("post_ffw_norm", all));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
