// See rope_scaling.h. Sources: Su et al. 2021, arXiv:2104.09864 (RoPE); Chen et al. 2023, arXiv:2306.15595 (linear);
// Peng et al. 2023, arXiv:2309.00071 (YaRN; eq. 15 to 18 and its section 3.4 for the magnitude).
#include "model/rope_scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "assay/error.h"
#include "num/math64.h"

namespace assay::model {
namespace {

// YaRN's softmax temperature, as a factor on queries and keys both.
double yarn_magnitude(double factor, double multiplier) {
  return factor <= 1 ? 1.0 : 0.1 * multiplier * num::log64(factor) + 1.0;
}

// The pair (fractional index) whose frequency makes `rotations` full turns within n_ctx_original positions.
double pair_of_rotations(double rotations, double dim, double theta, double n_ctx_original) {
  return dim * num::log64(n_ctx_original / (rotations * 2 * std::numbers::pi)) / (2 * num::log64(theta));
}

void refuse_if_set(const KeyReader& keys, std::string_view name, double neutral) {
  const std::string key = keys.key(name);
  const auto value = keys.metadata().find_float(key);
  if (value && *value != neutral) {
    throw Error(Errc::unsupported, fmt::format("{} = {}: only {} is served", key, *value, neutral));
  }
}

void read_yarn(const KeyReader& keys, const Hparams& h, RopeScaling& scaling) {
  scaling.n_ctx_original = static_cast<double>(
      keys.find_count("rope.scaling.original_context_length", 1, kContextMax).value_or(h.n_ctx_train));
  scaling.beta_fast = keys.find_positive("rope.scaling.yarn_beta_fast", 1e6).value_or(32.0);
  scaling.beta_slow = keys.find_positive("rope.scaling.yarn_beta_slow", 1e6).value_or(1.0);
  refuse_if_set(keys, "rope.scaling.yarn_ext_factor", 1.0);
  scaling.magnitude = yarn_magnitude(scaling.factor, 1.0);
  const std::string log_multiplier_key = keys.key("rope.scaling.yarn_log_multiplier");
  const double log_multiplier = keys.metadata().find_float(log_multiplier_key).value_or(0.0);
  if (!std::isfinite(log_multiplier) || log_multiplier < 0) {
    throw Error(Errc::bad_file,
                fmt::format("{}: needs a finite value from 0, found {}", log_multiplier_key, log_multiplier));
  }
  if (log_multiplier != 0) scaling.magnitude /= yarn_magnitude(scaling.factor, log_multiplier);
  // A configuration that states the magnitude means it, as in transformers; llama.cpp reads the key and computes the
  // magnitude nonetheless.
  if (const auto stated = keys.find_positive("rope.scaling.yarn_attn_factor", 1e6)) scaling.magnitude = *stated;
}

}  // namespace

RopeScaling read_rope_scaling(const KeyReader& keys, const Hparams& h) {
  const std::string type_key = keys.key("rope.scaling.type");
  const std::string_view type =
      keys.metadata().find_string(type_key).value_or("linear");  // what a factor without a type means
  RopeScaling scaling;
  if (type == "none") return scaling;
  if (type != "linear" && type != "yarn") {
    throw Error(Errc::unsupported,
                fmt::format("{} = \"{}\": only none, linear and yarn (and the tensor rope_freqs.weight) are served",
                            type_key, type));
  }
  auto factor = keys.find_positive("rope.scaling.factor", 1e6);
  if (!factor) factor = keys.find_positive("rope.scale_linear", 1e6);  // the key's name before 2024
  scaling.factor = factor.value_or(1.0);
  if (type == "yarn") {
    scaling.kind = RopeScaling::Kind::yarn;
    read_yarn(keys, h, scaling);
  } else if (scaling.factor != 1.0) {
    scaling.kind = RopeScaling::Kind::linear;
  }
  scaling.magnitude *= keys.find_positive("rope.scaling.attn_factor", 1e6).value_or(1.0);
  return scaling;
}

ops::RopeSpec make_rope(int64_t dim, double theta, bool interleaved, const RopeScaling& scaling,
                        std::span<const float> factors) {
  ops::RopeSpec rope{dim, interleaved, {}, scaling.magnitude};
  double low = 0, high = 0;  // YaRN's ramp: pairs below low keep their frequency, above high are stretched whole
  if (scaling.kind == RopeScaling::Kind::yarn) {
    const double d = static_cast<double>(dim);
    low = pair_of_rotations(scaling.beta_fast, d, theta, scaling.n_ctx_original);
    high = pair_of_rotations(scaling.beta_slow, d, theta, scaling.n_ctx_original);
    if (scaling.rounds_corners) low = std::floor(low), high = std::ceil(high);
    low = std::max(0.0, low);
    high = std::min(d - 1, high);
  }
  for (int64_t i = 0; i < dim / 2; ++i) {
    double kept = num::pow64(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    if (!factors.empty()) kept /= static_cast<double>(factors[static_cast<size_t>(i)]);
    const double stretched = kept / scaling.factor;
    double share_stretched = scaling.kind == RopeScaling::Kind::none ? 0.0 : 1.0;
    if (scaling.kind == RopeScaling::Kind::yarn) {
      share_stretched = std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    }
    rope.inverse_frequency.push_back(kept * (1 - share_stretched) + stretched * share_stretched);
  }
  return rope;
}

}  // namespace assay::model
