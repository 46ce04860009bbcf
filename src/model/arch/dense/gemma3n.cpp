// Gemma 3n, the text model: several streams of activations (AltUp), of which a layer computes one and corrects the
// others by what came out; beside attention a product of two small matrices (Laurel); gates of the first layers keep
// only what stands out; the last layers read the cache of an earlier one of their kind; every layer adds a vector of
// the token's own. Source: Hugging Face transformers, modeling_gemma3n; AltUp: arXiv:2301.13310.
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

constexpr double kMagnitudeEps = 1e-5;
constexpr int64_t kSparseLayers = 10;             // of files without the key
constexpr double kSparsity = 1.6448536269514722;  // standard deviations: 95 %

std::vector<double> sparsities(const Decoder& d) {
  const KeyReader& keys = d.input.keys;
  std::vector<double> found;
  if (const auto values = keys.metadata().find_floats(keys.key("activation_sparsity_scale"))) {
    for (const auto value : *values) found.push_back(static_cast<double>(value));
    if (found.size() != static_cast<size_t>(d.h.n_layers)) {
      throw Error(Errc::bad_file, fmt::format("{}: needs {} values, one a layer, found {}",
                                              keys.key("activation_sparsity_scale"), d.h.n_layers, found.size()));
    }
    for (const double value : found) {
      if (std::isnan(value) || value == HUGE_VAL)  // minus infinity: every gate is kept
        throw Error(Errc::bad_file, fmt::format("{}: needs numbers below infinity, found {}",
                                                keys.key("activation_sparsity_scale"), value));
    }
    return found;
  }
  for (int64_t layer = 0; layer < d.h.n_layers; ++layer) found.push_back(layer < kSparseLayers ? kSparsity : 0);
  return found;
}

class AltUp {
 public:
  explicit AltUp(const Decoder& decoder)
      : d_(decoder), p_(d_.p), n_(d_.input.keys.find_count("altup.num_inputs", 1, 64).value_or(4)),
        active_(d_.input.keys.find_count("altup.active_idx", 0, n_ - 1).value_or(0)) {}

  using StreamsOf = std::vector<ValueId>;

  StreamsOf begin(ValueId x) const { return spread("altup_proj", "altup_begin", x); }
  ValueId active(const StreamsOf& streams) const { return streams[static_cast<size_t>(active_)]; }

  // Every stream plus a sum of all of them, weighted by what the active one says.
  StreamsOf predict(const StreamsOf& x) const {
    const ValueId weights = p_.linear("altup_predict_coef", modalities("predict", active(x)), n_ * n_, Bias::none);
    StreamsOf y;
    for (int64_t i = 0; i < n_; ++i) {
      ValueId sum = x[static_cast<size_t>(i)];
      for (int64_t j = 0; j < n_; ++j) {
        const std::string name = fmt::format("altup_predict_{}_{}", i, j);
        sum = p_.add(name + "_sum", sum,
                     p_.product(name, p_.slice(name + "_coef", weights, 1, i * n_ + j, 1), x[static_cast<size_t>(j)]));
      }
      y.push_back(sum);
    }
    return y;
  }

  // Every stream plus a share of what the layer's result says beyond the prediction.
  StreamsOf correct(const StreamsOf& x, ValueId result) const {
    const ValueId weights = p_.linear("altup_correct_coef", modalities("correct", result), n_, Bias::none);
    const ValueId beyond = p_.add("altup_innovation", result, p_.scale("altup_predicted_negative", active(x), -1));
    StreamsOf y;
    for (int64_t i = 0; i < n_; ++i) {
      const std::string name = fmt::format("altup_correct_{}", i);
      const ValueId share =
          p_.add(name + "_share", beyond, p_.product(name, p_.slice(name + "_coef", weights, 1, i, 1), beyond));
      y.push_back(p_.add(name + "_sum", x[static_cast<size_t>(i)], share));
    }
    return y;
  }

  StreamsOf add_to_others(const StreamsOf& x, ValueId own) const {
    StreamsOf y = x;
    for (size_t i = 1; i < y.size(); ++i) y[i] = p_.add(fmt::format("residual_{}", i), y[i], own);
    return y;
  }

  // The mean of all, each taken back and made as long as the first.
  ValueId end(const StreamsOf& x) const {
    ValueId sum = x[0];
    for (int64_t i = 1; i < n_; ++i) {
      const std::string name = fmt::format("altup_unembd_{}", i);
      sum = p_.add(
          name + "_sum", sum,
          matched(name,
                  p_.linear_block(name, "altup_unembd_proj", x[static_cast<size_t>(i)], n_ - 1, i - 1, d_.h.d_model),
                  x[0]));
    }
    return p_.scale("altup_mean", sum, 1 / static_cast<double>(n_));
  }

 private:
  ValueId matched(const std::string& name, ValueId x, ValueId like) const {
    return p_.match_magnitude(name + "_matched", x, like, kMagnitudeEps);
  }
  StreamsOf spread(const char* weight, const std::string& name, ValueId x) const {
    StreamsOf all = {x};
    for (int64_t i = 1; i < n_; ++i) {
      const std::string of = fmt::format("{}_{}", name, i);
      all.push_back(matched(of, p_.linear_block(of, weight, x, n_ - 1, i - 1, d_.h.d_model), x));
    }
    return all;
  }
  ValueId modalities(const std::string& of, ValueId x) const {
    const ValueId normed =
        p_.scale("altup_router_scaled_" + of,
                 p_.rms_norm_by("altup_router_norm_" + of, "altup_router_norm.weight", x, d_.h.norm_eps),
                 1 / static_cast<double>(d_.h.d_model));
    const ops::WeightId w =
        p_.weights().matrix(fmt::format("blk.{}.altup_router.weight", p_.layer()), n_, d_.h.d_model);
    return p_.softcap("altup_modalities_" + of, p_.linear("altup_router_" + of, normed, n_, w), 1.0);  // tanh
  }

  const Decoder& d_;
  PlanBuilder& p_;
  int64_t n_, active_;
};

// For every token and layer a vector of w elements, from the token's own row and from its scaled embedding.
ValueId own_inputs(const Decoder& d, ValueId x, int64_t w) {
  PlanBuilder& p = d.p;
  const int64_t n = d.h.n_layers * w;
  const ValueId own =
      p.embed("per_layer_token_embd", p.rows_of("per_layer_token_embd.weight"), n, std::sqrt(static_cast<double>(w)));
  const ValueId made = p.scale("per_layer_model_proj_scaled", p.linear("per_layer_model_proj", x, n, Bias::none),
                               1 / std::sqrt(static_cast<double>(d.h.d_model)));
  const ValueId both = p.add("per_layer_sum", p.rms_norm_heads("per_layer_proj_norm", made, w, d.h.norm_eps), own);
  return p.scale("per_layer_inputs", both, 1 / std::numbers::sqrt2);
}

Heads heads_of(const Decoder& d, ValueId x, ops::RopeId rope, bool keeps) {
  PlanBuilder& p = d.p;
  const auto turned = [&](const char* norm, const char* turn, ValueId heads) {
    return p.rope(turn, d.rms_heads(norm, heads), rope, d.h.head_dim);
  };
  Heads heads{turned("attn_q_norm", "attn_q_rope", p.linear("attn_q", x, d.n_heads() * d.h.head_dim, Bias::optional)),
              kNone, kNone};
  if (!keeps) return heads;
  heads.k = turned("attn_k_norm", "attn_k_rope", p.linear("attn_k", x, d.n_kv_heads() * d.h.head_dim, Bias::optional));
  heads.v = p.rms_norm_plain("attn_v_norm", p.linear("attn_v", x, d.n_kv_heads() * d.h.value_dim, Bias::optional),
                             d.h.value_dim, d.h.norm_eps);
  return heads;
}

ValueId sparse_ffn(const Decoder& d, ValueId x, double sparsity) {
  PlanBuilder& p = d.p;
  ValueId gate = p.linear("ffn_gate", x, d.d_ff(), Bias::optional);
  if (sparsity > 0) gate = p.sparse_gate("ffn_gate_sparse", gate, sparsity);
  return p.linear(
      "ffn_down",
      p.gate("ffn_act", gate, p.linear("ffn_up", x, d.d_ff(), Bias::optional), ActivationFunction::gelu_tanh),
      d.h.d_model, Bias::optional);
}

}  // namespace

ValueId gemma3n(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  const AltUp altup(d);
  const std::vector<bool> windowed = d.windowed_layers(5, true);
  const std::vector<double> sparsity = sparsities(d);
  const std::array<ops::RopeId, 2> ropes = {
      d.rope(Pairing::halves),
      d.plain_rope(Pairing::halves, input.keys.find_positive("rope.freq_base_swa", 1e30).value_or(10000.0))};
  std::array<int32_t, 2> last_cache = {kNone, kNone};  // of full layers and of those with a window
  const int64_t shared = input.keys.find_count("attention.shared_kv_layers", 0, d.n_layers - 1)
                             .value_or(d.n_layers > 20 ? d.n_layers - 20 : 0);
  const int64_t w = input.keys.find_count("embedding_length_per_layer_input", 1, kWidthMax).value_or(256);
  const ValueId embedded = d.embed(std::sqrt(static_cast<double>(d.h.d_model)));
  const ValueId inputs = own_inputs(d, embedded, w);
  std::vector<ValueId> streams = altup.begin(embedded);
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const size_t kind = windowed[static_cast<size_t>(layer)] ? 1 : 0;
    const bool keeps = layer < d.n_layers - shared;
    if (keeps) {
      d.begin_layer(layer, kind == 1 ? d.window() : 0);
      last_cache[kind] = p.cache();
    } else if (last_cache[kind] == kNone) {
      throw Error(Errc::bad_file, fmt::format("{}: layer {} finds no earlier layer of its kind that keeps keys",
                                              input.keys.key("attention.shared_kv_layers"), layer));
    } else {
      p.begin_layer_over(layer, last_cache[kind]);
      for (const char* unused : {"attn_k.", "attn_v.", "attn_k_norm."})
        p.weights().ignore(fmt::format("blk.{}.{}", layer, unused));
    }
    std::vector<ValueId> predicted = altup.predict(streams);
    const ValueId n = d.rms("attn_norm", altup.active(predicted));
    const ValueId low = p.linear("laurel_r", p.linear("laurel_l", n, p.rows_of("laurel_l.weight"), Bias::none),
                                 d.h.d_model, Bias::none);
    const ValueId laurel = d.wanted("laurel", p.add("laurel", n, d.rms("laurel_post_norm", low)));
    const ValueId o = d.attend(heads_of(d, n, ropes[kind], keeps), {1.0}, {});
    const ValueId own = d.wanted("inp_layer", p.slice("inp_layer", inputs, 1, layer * w, w));
    for (size_t i = 0; i < predicted.size(); ++i) predicted[i] = d.wanted(fmt::format("predicted_{}", i), predicted[i]);
    const ValueId attended = p.add("attn_residual", altup.active(predicted), d.rms("post_attention_norm", o));
    const ValueId x = p.scale("attn_laurel", p.add("attn_laurel_sum", attended, laurel), 1 / std::numbers::sqrt2);
    const ValueId result =
        p.add("ffn_residual", x,
              d.rms("post_ffw_norm", sparse_ffn(d, d.rms("ffn_norm", x), sparsity[static_cast<size_t>(layer)])));
    streams = altup.correct(predicted, result);
    ValueId first = altup.active(streams);
    if (p.has("altup_correct_scale.weight"))
      first = p.scale_columns("altup_correct_scale", "altup_correct_scale.weight", first, d.h.d_model);
    const ValueId gated =
        p.gate("inp_gated", p.linear("inp_gate", first, w, Bias::none), own, ActivationFunction::gelu_tanh);
    streams = altup.add_to_others(streams, d.rms("post_norm", p.linear("proj", gated, d.h.d_model, Bias::none)));
  }
  p.end_layers();
  return d.capped(d.logits(d.rms("output_norm", altup.end(streams))));
}

}  // namespace assay::model::arch
