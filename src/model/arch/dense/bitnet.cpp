// BitNet b1.58: a llama whose projections may have a scale of their own, with a norm before attn_output and one before
// ffn_down. Source: arXiv:2402.17764.
#include <fmt/format.h>

#include "model/arch/decoder.h"

namespace assay::model::arch {
namespace {

using ops::ValueId;

// The projection times <name>.scale, where the file has it.
ValueId scaled_linear(PlanBuilder& p, const char* name, ValueId x, int64_t width) {
  const ValueId y = p.linear(name, x, width, Bias::optional);
  const std::string scale = fmt::format("{}.scale", name);
  return p.has(scale) ? p.scale_columns(fmt::format("{}_scaled", name), scale, y, 1) : y;
}

}  // namespace

ValueId bitnet(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const ValueId n = d.rms("attn_norm", x);
    const Heads heads{scaled_linear(p, "attn_q", n, d.n_heads() * d.h.head_dim),
                      scaled_linear(p, "attn_k", n, d.n_kv_heads() * d.h.head_dim),
                      scaled_linear(p, "attn_v", n, d.n_kv_heads() * d.h.value_dim)};
    const ValueId o = d.attend_heads(d.turn(heads, rope), d.scaled(), {&x});
    x = p.add("attn_residual", x, scaled_linear(p, "attn_output", d.rms("attn_sub_norm", o), d.h.d_model));
    const ValueId f = d.rms("ffn_norm", x);
    const ValueId gate = scaled_linear(p, "ffn_gate", f, d.d_ff()), up = scaled_linear(p, "ffn_up", f, d.d_ff());
    const ValueId act = d.rms("ffn_sub_norm", p.gate("ffn_act", gate, up, ops::ActivationFunction::silu));
    x = p.add("residual", x, scaled_linear(p, "ffn_down", act, d.h.d_model));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
