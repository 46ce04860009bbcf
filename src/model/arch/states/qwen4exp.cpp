// Qwen3.8-Flash-Next: qwen35moe on several streams of activations. Before a block the streams are mixed into one, after
// it the block's result is put back into each. Layers of attention choose keys once there are more than
// attention.indexer.top_k: contexts end there, for this build does not choose.
#include <fmt/format.h>

#include "model/arch/states/gated_delta.h"
#include "model/arch/states/recurrent.h"

namespace assay::model::arch {
namespace {

using ops::ActivationFunction;
using ops::ValueId;

class Streams {
 public:
  explicit Streams(const Decoder& decoder)
      : d_(decoder), n_(d_.input.keys.count("hyper_connection.count", 1, 64)),
        rank_(d_.input.keys.count("hyper_connection.low_rank", 1, kWidthMax)) {}

  ValueId begin(ValueId x) const { return repeat("streams", x); }

  // (normed streams, one row of them): the mean over the streams of n * sigmoid(up(silu(down(n) / count))).
  std::pair<ValueId, ValueId> mix(const std::string& of, ValueId x) const {
    PlanBuilder& p = d_.p;
    const ValueId n =
        p.scale_columns(of + "_norm", of + "_norm.weight",
                        p.rms_norm_plain(of + "_norm_plain", x, d_.h.d_model, d_.h.norm_eps), n_ * d_.h.d_model);
    const ValueId low = p.scale(of + "_down_mean", p.linear(of + "_down", n, rank_, Bias::none), 1 / count());
    const ValueId up =
        p.linear(of + "_up", p.activate(of + "_act", low, ActivationFunction::silu), n_ * d_.h.d_model, Bias::none);
    const ValueId gated = p.gate(of + "_gated", up, n, ActivationFunction::sigmoid);
    ValueId sum = part(of, gated, 0);
    for (int64_t i = 1; i < n_; ++i) sum = p.add(fmt::format("{}_sum_{}", of, i), sum, part(of, gated, i));
    return {n, p.scale(of + "_mean", sum, 1 / count())};
  }

  // x_i + 2 sigmoid(inject(n)_i / count) * block
  ValueId put_back(const std::string& of, ValueId x, ValueId n, ValueId block) const {
    PlanBuilder& p = d_.p;
    const ValueId share = p.scale(of + "_inject_mean", p.linear(of + "_inject", n, n_, Bias::none), 1 / count());
    const ValueId injected = p.gate(of + "_injected", share, repeat(of + "_block", block), ActivationFunction::sigmoid);
    return p.add(of + "_residual", x, p.scale(of + "_injected_twice", injected, 2));
  }

 private:
  double count() const { return static_cast<double>(n_); }
  ValueId part(const std::string& of, ValueId x, int64_t i) const {
    return d_.p.slice(fmt::format("{}_stream_{}", of, i), x, 1, i * d_.h.d_model, d_.h.d_model);
  }
  ValueId repeat(const std::string& name, ValueId x) const {
    ValueId all = x;
    for (int64_t i = 1; i < n_; ++i) all = d_.p.join(fmt::format("{}_{}", name, i + 1), all, x, 1, d_.h.d_model);
    return all;
  }

  const Decoder& d_;
  int64_t n_, rank_;
};

// The indexers' tensors have no effect up to here.
void end_where_all_keys_are_chosen(const Decoder& d) {
  const int64_t top_k = d.input.keys.find_count("attention.indexer.top_k", 0, kContextMax).value_or(0);
  if (top_k == 0) return;
  if (top_k < d.h.n_ctx_train) d.p.set_n_ctx_max(top_k);
  for (int64_t layer = 0; layer < d.n_layers; ++layer) d.p.weights().ignore(fmt::format("blk.{}.indexer.", layer));
}

}  // namespace

ValueId qwen4exp(const ArchInput& input, PlanBuilder& p) {
  const Decoder d(input, p);
  end_where_all_keys_are_chosen(d);
  const std::vector<bool> recurrent = recurrent_layers(d);
  const GatedDeltaNet delta(d, true, ActivationFunction::sigmoid);
  const Streams streams(d);
  const RouteRule rule = d.route_rule(ops::Gating::softmax, true);
  const ops::RopeId rope = d.rope(Pairing::halves);
  ValueId x = streams.begin(d.embed());
  for (int32_t layer = 0; layer < d.n_layers; ++layer) {
    const bool is_recurrent_layer = recurrent[static_cast<size_t>(layer)];
    is_recurrent_layer ? p.begin_layer(layer) : d.begin_layer(layer);
    auto [n, mixed] = streams.mix("hc_attn", x);
    ValueId o;
    if (is_recurrent_layer) {
      o = delta.mix(mixed);
      x = d.wanted("residual", x), n = d.wanted("hc_attn_norm", n);
    } else {
      o = gated_attention(d, mixed, rope, {&x, &n});
    }
    x = streams.put_back("hc_attn", x, n, o);
    const auto [of_ffn, f] = streams.mix("hc_ffn", x);
    x = streams.put_back("hc_ffn", x, of_ffn, experts_and_gated_shared(d, f, rule));
  }
  p.end_layers();
  return d.logits(streams.mix("output_hc", x).second);
}

}  // namespace assay::model::arch
