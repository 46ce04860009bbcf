// Gemma 4, the text model: scaled embeddings, four norms a layer, normed heads and values, scores as they are, a soft
// cap on the logits. Window layers have heads of their own width and a plain rotation; full layers rotate by the file's
// factors and may take their keys, before norm and rotation, for values. E models: the last layers read the cache of
// the last earlier layer of their kind, and every layer adds a vector of the token's own. With experts these stand
// beside the dense feed-forward layer. Source: Hugging Face transformers, modeling_gemma4.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

#include "assay/error.h"
#include "model/arch/decoder.h"

namespace assay::model::arch {
namespace {

using ops::ActivationFunction;
using ops::kNone;
using ops::ValueId;

struct Kind {  // of layer: with a window, or full
  int64_t head_dim, value_dim, window;
  ops::RopeId rope;
};

Kind full_kind(const Decoder& d) { return {d.h.head_dim, d.h.value_dim, 0, d.rope(Pairing::halves)}; }

Kind window_kind(const Decoder& d) {
  const KeyReader& keys = d.input.keys;
  const int64_t head_dim = keys.find_count("attention.key_length_swa", 1, kHeadDimMax).value_or(d.h.head_dim);
  const int64_t value_dim = keys.find_count("attention.value_length_swa", 1, kHeadDimMax).value_or(head_dim);
  const int64_t dim = keys.find_count("rope.dimension_count_swa", 2, head_dim).value_or(head_dim);
  if (dim % 2 != 0)
    throw Error(Errc::bad_file,
                fmt::format("{}: needs an even number, found {}", keys.key("rope.dimension_count_swa"), dim));
  const double theta = keys.find_positive("rope.freq_base_swa", 1e30).value_or(10000.0);
  return {head_dim, value_dim, d.window(), d.p.add_rope(make_rope(dim, theta, false, {}))};
}

// Projections, norms and rotation; keys and values only of a layer that keeps its own.
Heads make_heads(const Decoder& d, ValueId x, const Kind& kind, bool keeps) {
  PlanBuilder& p = d.p;
  const auto turned = [&](const char* norm, const char* turn, ValueId heads) {
    return p.rope(turn, p.rms_norm_heads(norm, heads, kind.head_dim, d.h.norm_eps), kind.rope, kind.head_dim);
  };
  Heads heads{turned("attn_q_norm", "attn_q_rope", p.linear("attn_q", x, d.n_heads() * kind.head_dim, Bias::optional)),
              kNone, kNone};
  if (!keeps) return heads;
  const ValueId k = p.linear("attn_k", x, d.n_kv_heads() * kind.head_dim, Bias::optional);
  const bool has_v = p.has("attn_v.weight");
  if (!has_v && kind.value_dim != kind.head_dim) {
    throw Error(Errc::bad_file,
                fmt::format("blk.{}.attn_v.weight: needs to be there where values ({}) and keys ({}) differ in width",
                            p.layer(), kind.value_dim, kind.head_dim));
  }
  const ValueId v = has_v ? p.linear("attn_v", x, d.n_kv_heads() * kind.value_dim, Bias::optional) : k;
  heads.k = turned("attn_k_norm", "attn_k_rope", k);
  heads.v = p.rms_norm_plain("attn_v_norm", v, kind.value_dim, d.h.norm_eps);
  return heads;
}

// Of E models: for every token and layer a vector of w elements, from the token's own row and from its scaled
// embedding.
ValueId per_layer_inputs(const Decoder& d, ValueId x, int64_t w) {
  PlanBuilder& p = d.p;
  const int64_t n = d.h.n_layers * w;
  const ValueId own = p.embed("per_layer_token_embd", d.input.vocab_size, n, std::sqrt(static_cast<double>(w)));
  const ValueId made = p.scale("per_layer_model_proj_scaled", p.linear("per_layer_model_proj", x, n, Bias::none),
                               1 / std::sqrt(static_cast<double>(d.h.d_model)));
  const ValueId both = p.add("per_layer_sum", p.rms_norm_heads("per_layer_proj_norm", made, w, d.h.norm_eps), own);
  return p.scale("per_layer_inputs", both, 1 / std::numbers::sqrt2);
}

ValueId feed_forward(const Decoder& d, ValueId x) {
  PlanBuilder& p = d.p;
  const ValueId dense = d.ffn_gated(d.rms("ffn_norm", x), ActivationFunction::gelu_tanh);
  if (!d.has_router()) return d.rms("post_ffw_norm", dense);
  RouteRule rule = d.route_rule(ops::Gating::softmax, true);
  if (p.has("ffn_down_exps.scale")) rule.expert_scales = "ffn_down_exps.scale";
  const ValueId seen =
      p.scale("ffn_gate_inp_scaled", p.rms_norm_by("ffn_gate_inp_norm", "ffn_gate_inp.scale", x, d.h.norm_eps),
              1 / std::sqrt(static_cast<double>(d.h.d_model)));
  const ValueId routed =
      d.experts(d.rms("pre_ffw_norm_2", x), d.routes(seen, rule), true, ActivationFunction::gelu_tanh);
  return d.rms("post_ffw_norm", p.add("ffn_all", d.rms("post_ffw_norm_1", dense), d.rms("post_ffw_norm_2", routed)));
}

double output_scale(const Decoder& d) {
  const std::vector<float> found =
      d.p.weights().optional_values(fmt::format("blk.{}.layer_output_scale.weight", d.p.layer()), 1);
  return found.empty() ? 1.0 : static_cast<double>(found[0]);
}

}  // namespace

ValueId gemma4(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  const std::vector<bool> windowed = d.windowed_layers(6, true);
  const std::array<Kind, 2> kinds = {full_kind(d), window_kind(d)};
  std::array<int32_t, 2> last_cache = {kNone, kNone};  // of each kind
  const int64_t first_shared =
      d.n_layers - input.keys.find_count("attention.shared_kv_layers", 0, d.n_layers - 1).value_or(0);
  const int64_t w = input.keys.find_count("embedding_length_per_layer_input", 0, kWidthMax).value_or(0);
  ValueId x = d.embed(std::sqrt(static_cast<double>(d.h.d_model)));
  const ValueId inputs = w > 0 ? per_layer_inputs(d, x, w) : kNone;
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const size_t i_kind = windowed[static_cast<size_t>(layer)] ? 1 : 0;
    const Kind& kind = kinds[i_kind];
    const bool keeps = layer < first_shared;
    if (keeps) {
      d.begin_layer(layer, {0, kind.head_dim, kind.window, kind.value_dim});
      last_cache[i_kind] = p.cache();
    } else if (last_cache[i_kind] == kNone) {
      throw Error(Errc::bad_file, fmt::format("{}: layer {} finds no earlier layer of its kind that keeps keys",
                                              input.keys.key("attention.shared_kv_layers"), layer));
    } else {
      p.begin_layer_over(layer, last_cache[i_kind]);
      for (const char* unused : {"attn_k.", "attn_v.", "attn_k_norm."})
        p.weights().ignore(fmt::format("blk.{}.{}", layer, unused));
    }
    ValueId own = w > 0 ? p.slice("inp_layer", inputs, 1, layer * w, w) : kNone;
    const Heads heads = make_heads(d, d.rms("attn_norm", x), kind, keeps);
    const ValueId o = w > 0 ? d.attend(heads, {1.0}, {&x, &own}) : d.attend(heads, {1.0}, {&x});
    x = p.add("attn_residual", x, d.rms("post_attention_norm", o));
    x = p.add(w > 0 ? "ffn_residual" : "residual_unscaled", x, feed_forward(d, x));
    if (w > 0) {
      const ValueId gated =
          p.gate("inp_gated", p.linear("inp_gate", x, w, Bias::none), own, ActivationFunction::gelu_tanh);
      x = p.add("residual_unscaled", x, d.rms("post_norm", p.linear("proj", gated, d.h.d_model, Bias::none)));
    }
    x = p.scale("residual", x, output_scale(d));
  }
  p.end_layers();
  return d.capped(d.logits(d.rms("output_norm", x)));
}

}  // namespace assay::model::arch
