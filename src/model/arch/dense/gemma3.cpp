// Gemma 3, the text model: scaled embeddings, RMS norms before and after attention and FFN, norms on queries and keys,
// GELU, and layers that alternate between a sliding window (with its own rotation base) and full attention. The norms'
// "1 + weight" stands in the file's weights already. Source: Gemma 3 technical report, arXiv:2503.19786, and Hugging
// Face transformers' modeling_gemma3.
#include <cmath>

#include "model/arch/decoder.h"
#include "ops/rows/activation.h"

namespace assay::model::arch {
namespace {

// The 27B model alone, told by its 62 layers, scales by the width of a head as d_model has it; the file has no key for
// this.
double attention_scale(const Hparams& h) {
  const double width = h.n_layers == 62 ? static_cast<double>(h.d_model) / static_cast<double>(h.n_heads)
                                        : static_cast<double>(h.head_dim);
  return 1.0 / std::sqrt(width);
}

}  // namespace

ops::ValueId gemma3(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const int64_t window = d.window();
  const std::vector<bool> windowed = d.windowed_layers(6, true);
  const ops::RopeId rope_windowed =
      d.plain_rope(Pairing::halves, input.keys.find_positive("rope.freq_base_swa", 1e30).value_or(10000.0));
  const ops::RopeId rope_full = d.rope(Pairing::halves);
  ValueId x = d.embed(std::sqrt(static_cast<double>(d.h.d_model)));
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? window : 0);
    const Heads heads = d.turn(d.norm_heads(d.project(d.rms("attn_norm", x))), local ? rope_windowed : rope_full);
    const ValueId o = d.attend(heads, {attention_scale(d.h)}, {&x});
    x = p.add("attn_residual", x, d.rms("post_attention_norm", o));
    const ValueId f = d.ffn_gated(d.rms("ffn_norm", x), ops::ActivationFunction::gelu_tanh);
    x = p.add("residual", x, d.rms("post_ffw_norm", f));
  }
  p.end_layers();
  return d.capped(d.logits(d.rms("output_norm", x)));
}

}  // namespace assay::model::arch
