// See recurrent.h.
#include "model/arch/states/recurrent.h"

#include <fmt/format.h>

#include "assay/error.h"
#include "ops/state/causal_conv.h"

namespace assay::model::arch {
namespace {

using ops::ActivationFunction;
using ops::ValueId;

void require_divisor(const KeyReader& keys, const char* name, int64_t found, const char* of, int64_t whole) {
  if (whole % found != 0)
    throw Error(Errc::bad_file,
                fmt::format("{}: needs a divisor of {} ({}), found {}", keys.key(name), whole, keys.key(of), found));
}

}  // namespace

std::vector<bool> recurrent_layers(const Decoder& d) {
  const KeyReader& keys = d.input.keys;
  const int64_t interval = keys.find_count("full_attention_interval", 1, kLayersMax).value_or(4);
  if (auto flags = keys.find_flags("attention.recurrent_layers", d.h.n_layers)) return *flags;
  std::vector<bool> recurrent;
  for (int64_t layer = 0; layer < d.h.n_layers; ++layer) recurrent.push_back((layer + 1) % interval != 0);
  return recurrent;
}

bool is_recurrent(const Decoder& d, int32_t layer) { return d.h.n_kv_heads_of[static_cast<size_t>(layer)] == 0; }

Mamba2::Mamba2(const Decoder& decoder, float norm_eps) : d_(decoder), eps_(norm_eps) {
  const KeyReader& keys = d_.input.keys;
  kernel_ = keys.count("ssm.conv_kernel", 1, ops::kConvKernelMax);
  d_inner_ = keys.count("ssm.inner_size", 1, kWidthMax);
  d_state_ = keys.count("ssm.state_size", 1, kHeadDimMax);
  n_heads_ = keys.count("ssm.time_step_rank", 1, kHeadsMax);
  n_groups_ = keys.count("ssm.group_count", 1, kHeadsMax);
  require_divisor(keys, "ssm.time_step_rank", n_heads_, "ssm.inner_size", d_inner_);
  require_divisor(keys, "ssm.group_count", n_groups_, "ssm.time_step_rank", n_heads_);
}

// (z | x B C | dt) = ssm_in
ValueId Mamba2::mix(ValueId x) const {
  PlanBuilder& p = d_.p;
  const int64_t of_groups = n_groups_ * d_state_, d_conv = d_inner_ + 2 * of_groups, all = d_inner_ + d_conv + n_heads_;
  ValueId z = p.linear_rows("ssm_z", "ssm_in", x, all, 0, d_inner_);
  const ValueId xbc = p.linear_rows("ssm_xbc", "ssm_in", x, all, d_inner_, d_conv);
  const ValueId dt = p.add_columns("ssm_dt_biased", "ssm_dt.bias",
                                   p.linear_rows("ssm_dt", "ssm_in", x, all, d_inner_ + d_conv, n_heads_));
  const ValueId c =
      p.activate("ssm_conv1d_act", p.causal_conv("ssm_conv1d", "ssm_conv1d.weight", "ssm_conv1d.bias", xbc, kernel_),
                 ActivationFunction::silu);
  const ScanRule rule{p.slice("ssm_x", c, 1, 0, d_inner_),
                      p.activate("ssm_dt_act", dt, ActivationFunction::softplus),
                      p.slice("ssm_b", c, 1, d_inner_, of_groups),
                      p.slice("ssm_c", c, 1, d_inner_ + of_groups, of_groups),
                      n_heads_,
                      n_groups_,
                      1};
  const ValueId y = d_.wanted("ssm_scan", p.selective_scan("ssm_scan", "ssm_a", "ssm_d", rule));
  z = d_.wanted("ssm_z", z);
  ValueId gated = p.gate("ssm_gated", z, y, ActivationFunction::silu);
  if (p.has("ssm_norm.weight")) {
    require_divisor(d_.input.keys, "ssm.group_count", n_groups_, "ssm.inner_size", d_inner_);
    gated = p.scale_columns("ssm_norm", "ssm_norm.weight",
                            p.rms_norm_plain("ssm_norm_plain", gated, d_inner_ / n_groups_, eps_), d_inner_);
  }
  return p.linear("ssm_out", gated, d_.h.d_model, Bias::optional);
}

Mamba::Mamba(const Decoder& decoder, Norms norms) : d_(decoder), norms_(norms) {
  const KeyReader& keys = d_.input.keys;
  kernel_ = keys.count("ssm.conv_kernel", 1, ops::kConvKernelMax);
  d_inner_ = keys.count("ssm.inner_size", 1, kWidthMax);
  d_state_ = keys.count("ssm.state_size", 1, kHeadDimMax);
  dt_rank_ = keys.count("ssm.time_step_rank", 1, kWidthMax);
}

ValueId Mamba::normed(const char* name, ValueId x) const {
  if (norms_ == Norms::none) return x;
  const std::string normed = fmt::format("{}_norm", name);
  return norms_ == Norms::plain ? d_.p.rms_norm_plain(normed, x, d_.p.width(x), d_.h.norm_eps) : d_.rms(normed, x);
}

// (x | z) = ssm_in; (dt | B | C) = ssm_x of the convolved x
ValueId Mamba::mix(ValueId x) const {
  PlanBuilder& p = d_.p;
  const int64_t n = dt_rank_ + 2 * d_state_;
  const ValueId in = p.linear_rows("ssm_in_x", "ssm_in", x, 2 * d_inner_, 0, d_inner_);
  ValueId z = p.linear_rows("ssm_in_z", "ssm_in", x, 2 * d_inner_, d_inner_, d_inner_);
  const ValueId u =
      p.activate("ssm_conv1d_act", p.causal_conv("ssm_conv1d", "ssm_conv1d.weight", "ssm_conv1d.bias", in, kernel_),
                 ActivationFunction::silu);
  const ValueId low = normed("ssm_dt", p.linear_rows("ssm_x_dt", "ssm_x", u, n, 0, dt_rank_));
  const ValueId b = normed("ssm_b", p.linear_rows("ssm_x_b", "ssm_x", u, n, dt_rank_, d_state_));
  const ValueId c = normed("ssm_c", p.linear_rows("ssm_x_c", "ssm_x", u, n, dt_rank_ + d_state_, d_state_));
  const ValueId dt =
      p.activate("ssm_dt_act", p.linear("ssm_dt", low, d_inner_, Bias::optional), ActivationFunction::softplus);
  const ValueId y =
      d_.wanted("ssm_scan", p.selective_scan("ssm_scan", "ssm_a", "ssm_d", {u, dt, b, c, d_inner_, 1, d_state_}));
  z = d_.wanted("ssm_in_z", z);
  return p.linear("ssm_out", p.gate("ssm_gated", z, y, ActivationFunction::silu), d_.h.d_model, Bias::optional);
}

ValueId short_conv(const Decoder& d, ValueId x) {
  PlanBuilder& p = d.p;
  const int64_t n = d.h.d_model, kernel = d.input.keys.count("shortconv.l_cache", 1, ops::kConvKernelMax);
  const ValueId b = p.linear_rows("shortconv_b", "shortconv.in_proj", x, 3 * n, 0, n);
  ValueId c = p.linear_rows("shortconv_c", "shortconv.in_proj", x, 3 * n, n, n);
  const ValueId bx =
      p.product("shortconv_bx", b, p.linear_rows("shortconv_x", "shortconv.in_proj", x, 3 * n, 2 * n, n));
  const ValueId y = d.wanted(
      "shortconv_conv", p.causal_conv("shortconv_conv", "shortconv.conv.weight", "shortconv.conv.bias", bx, kernel));
  c = d.wanted("shortconv_c", c);
  return p.linear("shortconv.out_proj", p.product("shortconv_cy", c, y), n, Bias::optional);
}

}  // namespace assay::model::arch
