// Llama 4: experts in every so-manieth layer whose weight, a sigmoid, multiplies what goes in, beside a shared one;
// three of four layers rotate, norm heads without weights (not with 128 experts) and see blocks of 8,192 positions; the
// fourth sees all, does not rotate and scales queries with the position. With a window of 0 in the file all layers
// rotate and see all positions. Source: Hugging Face transformers, modeling_llama4.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId llama4(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  constexpr int32_t kPeriod = 4;  // layers 3, 7, 11, ... do not rotate; the file has no key for these numbers
  constexpr int64_t kChunk = 8192;
  constexpr double kTemperature = 0.1;
  const RouteRule rule = d.route_rule(ops::Gating::sigmoid, false);
  const int64_t step = input.keys.find_count("interleave_moe_layer_step", 1, kLayersMax).value_or(1);
  const bool norms_heads = d.n_experts() != 128;
  const bool in_blocks = input.keys.find_count("attention.sliding_window", 0, kContextMax) != 0;
  const std::vector<bool> blocked = input.keys.windowed_layers(d.h.n_layers, kPeriod, true);
  const ops::RopeId rope_full = d.rope(Pairing::pairs), rope_blocked = d.rope_windowed(Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const bool blocks = in_blocks && blocked[static_cast<size_t>(layer)];
    Heads heads = d.project(d.rms("attn_norm", x));
    AttentionRule attention = d.scaled();
    if (in_blocks && (layer + 1) % kPeriod == 0) {
      heads.q = p.scale_by_position("attn_q_scaled", heads.q, kTemperature, kChunk, 1);
    } else {
      heads = d.turn(heads, blocks ? rope_blocked : rope_full);
      if (norms_heads) {
        heads.q = p.rms_norm_plain("attn_q_norm", heads.q, d.h.head_dim, d.h.norm_eps);
        heads.k = p.rms_norm_plain("attn_k_norm", heads.k, d.h.head_dim, d.h.norm_eps);
      }
    }
    if (blocks) attention.chunk = kChunk;
    const ValueId o = d.attend(heads, attention, {&x});
    x = p.add("attn_residual", x, o);
    const ValueId f = d.rms("ffn_norm", x);
    if ((layer + 1) % step != 0) {
      x = p.add("residual", x, d.ffn_gated(f, ops::ActivationFunction::silu));
      continue;
    }
    const ValueId routes = d.routes(f, rule);
    const ValueId routed = d.experts(p.expert_scale("ffn_weighted", f, routes), routes, false);
    x = p.add("residual", x, p.add("ffn_all", routed, d.shared_experts(f)));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
