// Phi-3.5-MoE: LayerNorms and biases around llama's attention, LongRoPE as in phi3, two experts by sparsemixer. Source:
// Abdin et al. 2024, arXiv:2404.14219; Liu et al. 2024, arXiv:2409.12136; Hugging Face transformers 5.24,
// modeling_phimoe.
#include <fmt/format.h>

#include "assay/error.h"
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId phimoe(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  constexpr int64_t kUsed = 2;  // sparsemixer is of two choices, whatever the file says
  const Decoder d(input, p);
  const RouteRule rule = d.route_rule(ops::Gating::sparse_mixer, false);
  if (!(d.h.norm_eps > 0))
    input.keys.positive("attention.layer_norm_rms_epsilon", 1.0);  // of LayerNorms, under RMS's name
  const auto norm = [&](std::string_view name, ValueId x) {
    return p.layer_norm(name, x, d.h.norm_eps, NormWeights::required);
  };
  const ops::RopeId rope = d.long_rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer, d.window());
    if (const int64_t n_used = d.n_experts_used(); n_used != kUsed) {
      throw Error(Errc::unsupported,
                  fmt::format("{} = {}: only {} is served", input.keys.key("expert_used_count"), n_used, kUsed));
    }
    const ValueId o = d.attend(d.turn(d.project(norm("attn_norm", x)), rope), d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.experts(norm("ffn_norm", x), rule));
  }
  p.end_layers();
  return d.logits(norm("output_norm", x));
}

}  // namespace assay::model::arch
