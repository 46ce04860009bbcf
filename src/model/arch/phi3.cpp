// Phi-3, 3.5-mini, Phi-4: a llama with fused projections; long files have two sets of rotation factors, of which the short one is served: see
// docs/families.md. Source: Abdin et al. 2024, arXiv:2404.14219.
#include "model/arch/decoder.h"

namespace assay::model::arch {
namespace {

// LongRoPE: contexts up to the original length divide the frequencies by the short factors, longer ones by the long factors from their first token on.
// A plan has one rotation, so contexts end where the short factors do.
ops::RopeId long_rope(const Decoder& d) {
  const int64_t n = d.h.rope_dim / 2;
  std::vector<float> factors = d.p.weights().optional_values("rope_factors_short.weight", n);
  d.p.weights().optional_values("rope_factors_long.weight", n);
  if (factors.empty()) return d.rope(Pairing::halves);
  const int64_t original = d.input.keys.find_count("rope.scaling.original_context_length", 1, kContextMax).value_or(d.h.n_ctx_train);
  if (original < d.h.n_ctx_train) d.p.set_n_ctx_max(original);
  return d.p.add_rope(make_rope(d.h.rope_dim, d.h.rope_theta, false, read_rope_scaling(d.input.keys, d.h), factors));
}

}  // namespace

ops::ValueId phi3(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const ops::RopeId rope = long_rope(d);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    const bool fused = !p.has("ffn_gate.weight");
    x = p.add("residual", x, fused ? d.ffn_fused(f, ops::ActivationFunction::silu) : d.ffn_gated(f, ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
