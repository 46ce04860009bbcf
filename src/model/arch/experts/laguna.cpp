// Laguna: heads normed, what attention gives is multiplied by a softplus (of each head or of each element), windows in
// three of four layers with a plain rotation of their own, YaRN and a partial one in the full layers, experts by
// sigmoid beside a shared one after dense layers.
#include <fmt/format.h>

#include "assay/error.h"
#include "model/arch/decoder.h"

namespace assay::model::arch {
namespace {

int64_t gate_width(const Decoder& d) {
  const int64_t found = d.p.rows_of("attn_gate.weight"), all = d.n_heads() * d.h.value_dim;
  if (found == d.n_heads() || found == all) return found;
  throw Error(Errc::bad_file, fmt::format("blk.{}.attn_gate.weight: needs a row for each of {} heads, or {}, found {}",
                                          d.p.layer(), d.n_heads(), all, found));
}

}  // namespace

ops::ValueId laguna(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, true);
  const int64_t lead = d.leading_dense();
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(4, false);
  const int64_t dim_windowed =
      input.keys.find_count("rope.dimension_count_swa", 2, d.h.head_dim).value_or(d.h.rope_dim);
  const ops::RopeId rope_full = d.rope(Pairing::halves),
                    rope_windowed = p.add_rope(make_rope(dim_windowed / 2 * 2, d.rope_theta_windowed(), false, {}));
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    const ValueId n = d.rms("attn_norm", x);
    const Heads heads = d.turn(d.norm_heads(d.project(n)), local ? rope_windowed : rope_full);
    ValueId gate = p.linear("attn_gate", n, gate_width(d), Bias::optional);
    const ValueId attended = d.attend_heads(heads, d.scaled(), {&x, &gate});
    const ValueId o = d.attn_output(p.gate("attn_gated", gate, attended, ops::ActivationFunction::softplus));
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    x = p.add("residual", x, layer < lead ? d.ffn_gated(f, ops::ActivationFunction::silu) : d.mixture(f, rule));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
