// Apertus: norms of heads before the rotation, and an xIELU with numbers of its own in each layer instead of a gate.
// Source: arXiv:2509.14233.
#include <fmt/format.h>

#include <cmath>

#include "assay/error.h"
#include "model/arch/decoder.h"
#include "num/math64.h"

namespace assay::model::arch {
namespace {

struct Xielu {
  std::vector<float> alpha_n, alpha_p, beta, eps;  // by layer
};

// These keys have no architecture before them.
Xielu read_xielu(const ArchInput& input) {
  const auto read = [&](const char* key) {
    std::vector<float> found;
    const gguf::Entry* entry = input.keys.metadata().find(key);
    if (entry != nullptr && entry->type == gguf::ValueType::array) {
      found = input.keys.metadata().find_floats(key).value();
    } else {
      found.assign(static_cast<size_t>(input.hparams.n_layers),
                   static_cast<float>(input.keys.metadata().require_float(key)));
    }
    if (found.size() != static_cast<size_t>(input.hparams.n_layers)) {
      throw Error(Errc::bad_file,
                  fmt::format("{}: needs {} values, one a layer, found {}", key, input.hparams.n_layers, found.size()));
    }
    for (const float x : found) {
      if (!std::isfinite(x)) throw Error(Errc::bad_file, fmt::format("{}: needs finite values, found {}", key, x));
    }
    return found;
  };
  return {read("xielu.alpha_n"), read("xielu.alpha_p"), read("xielu.beta"), read("xielu.eps")};
}

double softplus(double x) { return x > 30 ? x : num::log64(1 + num::exp64(x)); }

ops::ValueId ffn(const Decoder& d, const Xielu& xielu, int32_t layer, ops::ValueId x) {
  const auto i = static_cast<size_t>(layer);
  const auto beta = static_cast<double>(xielu.beta[i]);
  const ops::ValueId up = d.p.linear("ffn_up", x, d.d_ff(), Bias::optional);
  const ops::ValueId act =
      d.p.xielu("ffn_act", up, softplus(static_cast<double>(xielu.alpha_p[i])),
                beta + softplus(static_cast<double>(xielu.alpha_n[i])), beta, static_cast<double>(xielu.eps[i]));
  return d.p.linear("ffn_down", act, d.h.d_model, Bias::optional);
}

}  // namespace

ops::ValueId apertus(const ArchInput& input, PlanBuilder& p) {
  using ops::ValueId;
  const Decoder d(input, p);
  const Xielu xielu = read_xielu(input);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = d.embed();
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    d.begin_layer(layer);
    const Heads heads = d.turn(d.norm_heads(d.project(d.rms("attn_norm", x))), rope);
    const ValueId o = d.attend(heads, d.scaled(), {&x});
    x = p.add("attn_residual", x, o);
    x = p.add("residual", x, ffn(d, xielu, layer, d.rms("ffn_norm", x)));
  }
  p.end_layers();
  return d.logits(d.rms("output_norm", x));
}

}  // namespace assay::model::arch
