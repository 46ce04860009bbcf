// Gemma 2: scaled embeddings, soft caps on scores and logits, norms before and after attention and FFN, every second
// layer through a window; norms hold 1 + weight. Source: Gemma 2 technical report, arXiv:2408.00118.
#include <cmath>

#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId gemma2(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  constexpr int64_t kWindow = 4096;  // of files older than the key
  const int64_t window = d.window(kWindow);
  const std::vector<bool> windowed = d.windowed_layers(2, true, kWindow);
  const ops::RopeId rope_full = d.rope(Pairing::halves), rope_windowed = d.rope_windowed(Pairing::halves);
  // The 27B model alone, told by its 46 layers, scales by the width of a head as d_model has it; the file has no key
  // for this.
  const int64_t width = d.h.n_layers == 46 ? d.h.d_model / d.h.n_heads : d.h.head_dim;
  const AttentionRule rule{1.0 / std::sqrt(static_cast<double>(width)),
                           input.keys.find_positive("attn_logit_softcapping", 1e30).value_or(50.0)};
  const double final_cap = input.keys.find_positive("final_logit_softcapping", 1e30).value_or(30.0);
  ValueId x = d.embed(std::sqrt(static_cast<double>(d.h.d_model)));
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    const Heads heads = d.turn(d.project(d.rms("attn_norm", x)), local ? rope_windowed : rope_full);
    const ValueId o = d.attend(heads, rule, {&x});
    x = p.add("attn_residual", x, d.rms("post_attention_norm", o));
    const ValueId f = d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::gelu_tanh);
    x = p.add("residual", x, d.rms("post_ffw_norm", f));
  }
  p.end_layers();
  return p.softcap("output_capped", d.logits(d.rms("output_norm", x)), final_cap);
}

}  // namespace assay::model::arch
