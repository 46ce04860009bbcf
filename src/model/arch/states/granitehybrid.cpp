// Granite 4.0 H and Bamba: layers of Mamba 2, and attention between them (without rotation where the file says so),
// with Granite's four multipliers; dense, or experts by softmax beside shared ones.
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {

ops::ValueId granitehybrid(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const Mamba2 mamba(d, d.h.norm_eps);
  const FileScales scales = d.scales();
  const bool has_experts = input.keys.find_count("expert_count", 0, ops::kExpertsMax).value_or(0) > 0;
  const RouteRule rule = has_experts ? d.route_rule(ops::Gating::softmax, true) : RouteRule{};
  const bool turns = input.keys.flag("rope.scaling.finetuned", true);
  const ops::RopeId rope = turns ? d.rope(Pairing::pairs) : ops::kNone;
  ValueId x = d.embed(scales.embedding);
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    ValueId o;
    if (is_recurrent(d, layer)) {
      p.begin_layer(layer);
      o = mamba.mix(d.rms("attn_norm", x));
      x = d.wanted("residual", x);
    } else {
      d.begin_layer(layer);
      Heads heads = d.project(d.rms("attn_norm", x));
      if (turns) heads = d.turn(heads, rope);
      o = d.attend(heads, scales.attention, {&x});
    }
    x = p.add("attn_residual", x, p.scale("attn_scaled", o, scales.residual));
    const ValueId f = d.rms("ffn_norm", x);
    const ValueId ffn = d.has_router() ? d.mixture(f, rule) : d.ffn_gated(f, ops::ActivationFunction::silu);
    x = p.add("residual", x, p.scale("ffn_scaled", ffn, scales.residual));
  }
  p.end_layers();
  return p.scale("output_scaled", d.logits(d.rms("output_norm", x)), scales.logits);
}

}  // namespace assay::model::arch
