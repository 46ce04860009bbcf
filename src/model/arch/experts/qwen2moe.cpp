// Qwen1.5-MoE and Qwen2-57B-A14B: Qwen2 with experts by softmax whose weights stay as they are, and a shared expert
// behind a sigmoid of its own. Source: Qwen2 technical report, arXiv:2407.10671.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId qwen2moe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::softmax, false);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    const ValueId gate = p.linear("ffn_gate_inp_shexp", f, 1, Bias::none);
    const ValueId shared = p.gate("ffn_shexp", gate, d.shared_experts(f), ops::ActivationFunction::sigmoid);
    x = p.add("residual", x, p.add("ffn_all", d.experts(f, rule), shared));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
