// ModernBERT: LayerNorm before attention (the embedding's own in layer 0) and FFN, a fused gate, windows of both sides
// in two of three layers with their own rotation. No head. Source: Warner et al. 2024, arXiv:2412.13663.
#include <fmt/format.h>

#include "assay/error.h"
#include "model/arch/decoder.h"

namespace assay::model::arch {
namespace {

ops::ActivationFunction activation(const KeyReader& keys) {
  const std::string_view name = keys.text("hidden_activation", "gelu");
  if (name == "gelu") return ops::ActivationFunction::gelu_erf;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return ops::ActivationFunction::gelu_tanh;
  if (name == "silu") return ops::ActivationFunction::silu;
  throw Error(Errc::unsupported,
              fmt::format("{} = \"{}\": this build serves gelu, gelu_pytorch_tanh, gelu_new and silu",
                          keys.key("hidden_activation"), name));
}

}  // namespace

ops::ValueId modern_bert(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const AttentionRule rule = d.both_ways();
  const ops::ActivationFunction function = activation(input.keys);
  const std::vector<bool> windowed = d.windowed_layers(3, false);
  const ops::RopeId rope_windowed =
      d.plain_rope(Pairing::halves, input.keys.find_positive("rope.freq_base_swa", 1e30).value_or(10000.0));
  const ops::RopeId rope_full = d.rope(Pairing::halves);
  ValueId x = d.layer_norm("token_embd_norm", d.embed());
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool local = windowed[static_cast<size_t>(layer)];
    d.begin_layer(layer, local ? d.window() : 0);
    const ValueId normed = p.has("attn_norm.weight") ? d.layer_norm("attn_norm", x) : x;
    const ValueId o = d.attend(d.turn(d.project(normed), local ? rope_windowed : rope_full), rule, {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, d.ffn_fused(d.layer_norm("ffn_norm", x), function));
  }
  p.end_layers();
  return d.no_logits(d.layer_norm("output_norm", x));
}

}  // namespace assay::model::arch
