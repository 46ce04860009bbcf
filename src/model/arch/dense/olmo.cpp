// OLMo 1: LayerNorm without weights; queries, keys and values clamped where the file says so. Source: Groeneveld et al.
// 2024, arXiv:2402.00838.
#include <fmt/format.h>

#include "assay/error.h"
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId olmo(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const double limit = input.keys.number("attention.clamp_kqv", 0);
  if (limit < 0)
    throw Error(Errc::bad_file,
                fmt::format("{}: needs a value from 0, found {}", input.keys.key("attention.clamp_kqv"), limit));
  const auto norm = [&](std::string_view name, ValueId x) {
    return p.layer_norm(name, x, d.layer_norm_eps(), NormWeights::none);
  };
  const ops::RopeId rope = d.rope(Pairing::pairs);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    Heads heads = d.project(norm("attn_norm", x));
    if (limit > 0)
      heads = {p.clamp("attn_q_clamped", heads.q, limit), p.clamp("attn_k_clamped", heads.k, limit),
               p.clamp("attn_v_clamped", heads.v, limit)};
    const ValueId o = d.attend(d.turn(heads, rope), d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_gated(norm("ffn_norm", x), ops::ActivationFunction::silu));
  }
  p.end_layers();
  return d.logits(norm("output_norm", x));
}

}  // namespace assay::model::arch
