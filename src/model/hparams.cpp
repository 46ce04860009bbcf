// See hparams.h. The key names are those of the GGUF specification.
#include "model/hparams.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "assay/error.h"

namespace assay::model {
namespace {

int64_t in_range(const std::string& key, uint64_t found, int64_t min, int64_t max) {
  if (found < static_cast<uint64_t>(min) || found > static_cast<uint64_t>(max)) {
    throw Error(Errc::bad_file, fmt::format("{}: needs a value from {} to {}, found {}", key, min, max, found));
  }
  return static_cast<int64_t>(found);
}

double in_range(const std::string& key, double found, double max) {
  if (!(found > 0 && found <= max)) {  // false for a NaN
    throw Error(Errc::bad_file, fmt::format("{}: needs a finite value above 0, at most {}, found {}", key, max, found));
  }
  return found;
}

// Keys that change the result and that no architecture served here reads; absent or at their neutral value they do nothing.
void refuse_unserved(const KeyReader& keys) {
  struct Key {
    std::string_view name;
    double neutral;
  };
  constexpr Key kUnserved[] = {
      {"attention.clamp_kqv", 0},        {"attention.max_alibi_bias", 0},   {"attn_logit_softcapping", 0},
      {"final_logit_softcapping", 0},    {"attention.scale", 0},            {"attention.temperature_scale", 0},
      {"logit_scale", 1},                {"embedding_scale", 1},            {"residual_scale", 1},
  };
  for (const Key& entry : kUnserved) {
    const std::string key = keys.key(entry.name);
    if (!keys.metadata().has(key)) continue;
    const double value = keys.metadata().require_float(key);
    if (value != 0 && value != entry.neutral) {
      throw Error(Errc::unsupported, fmt::format("{} = {}: this build does not serve {} models that use it", key, value,
                                                 keys.architecture()));
    }
  }
  const int64_t n_experts = keys.find_count("expert_count", 0, 65536).value_or(0);
  const int64_t n_experts_used = keys.find_count("expert_used_count", 0, 65536).value_or(0);
  if (n_experts_used > n_experts) {
    throw Error(Errc::bad_file, fmt::format("{}: needs at most {} ({}), found {}", keys.key("expert_used_count"), n_experts,
                                            keys.key("expert_count"), n_experts_used));
  }
  if (n_experts > 0) {
    throw Error(Errc::unsupported, fmt::format("{} = {}: mixture-of-experts models are not served by this build",
                                               keys.key("expert_count"), n_experts));
  }
  if (!keys.metadata().find_bool(keys.key("attention.causal")).value_or(true)) {
    throw Error(Errc::unsupported, fmt::format("{} = false: only causal models are served", keys.key("attention.causal")));
  }
}

}  // namespace

KeyReader::KeyReader(const gguf::Metadata& metadata, std::string architecture)
    : metadata_(&metadata), architecture_(std::move(architecture)) {}

std::string KeyReader::key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }

int64_t KeyReader::count(std::string_view name, int64_t min, int64_t max) const {
  const std::string full = key(name);
  return in_range(full, metadata_->require_unsigned(full), min, max);
}

std::optional<int64_t> KeyReader::find_count(std::string_view name, int64_t min, int64_t max) const {
  const std::string full = key(name);
  const std::optional<uint64_t> found = metadata_->find_unsigned(full);
  if (!found) return std::nullopt;
  return in_range(full, *found, min, max);
}

double KeyReader::positive(std::string_view name, double max) const {
  const std::string full = key(name);
  return in_range(full, metadata_->require_float(full), max);
}

std::optional<double> KeyReader::find_positive(std::string_view name, double max) const {
  const std::string full = key(name);
  const std::optional<double> found = metadata_->find_float(full);
  if (!found) return std::nullopt;
  return in_range(full, *found, max);
}

Hparams read_hparams(const KeyReader& keys) {
  refuse_unserved(keys);
  Hparams h;
  h.n_layers = keys.count("block_count", 1, kLayersMax);
  h.n_ctx_train = keys.count("context_length", 1, kContextMax);
  h.d_model = keys.count("embedding_length", 1, kWidthMax);
  h.d_ff = keys.count("feed_forward_length", 1, kWidthMax);
  h.n_heads = keys.count("attention.head_count", 1, kHeadsMax);
  h.n_kv_heads = keys.find_count("attention.head_count_kv", 1, kHeadsMax).value_or(h.n_heads);
  if (h.n_heads % h.n_kv_heads != 0) {
    throw Error(Errc::bad_file, fmt::format("{}: needs a divisor of {} ({}), found {}", keys.key("attention.head_count_kv"), h.n_heads,
                                            keys.key("attention.head_count"), h.n_kv_heads));
  }
  if (const auto head_dim = keys.find_count("attention.key_length", 1, kHeadDimMax)) {
    h.head_dim = *head_dim;
  } else if (h.d_model % h.n_heads == 0 && h.d_model / h.n_heads <= kHeadDimMax) {
    h.head_dim = h.d_model / h.n_heads;
  } else {
    throw Error(Errc::bad_file, fmt::format("{}: needs to be there or {} ({}) to divide {} ({}) into heads of at most {}",
                                            keys.key("attention.key_length"), keys.key("attention.head_count"), h.n_heads,
                                            keys.key("embedding_length"), h.d_model, kHeadDimMax));
  }
  const int64_t value_dim = keys.find_count("attention.value_length", 1, kHeadDimMax).value_or(h.head_dim);
  if (value_dim != h.head_dim) {
    throw Error(Errc::unsupported, fmt::format("{} = {}: only values as long as keys ({}) are served",
                                               keys.key("attention.value_length"), value_dim, h.head_dim));
  }
  h.rope_dim = keys.find_count("rope.dimension_count", 1, kHeadDimMax).value_or(h.head_dim);
  if (h.rope_dim % 2 != 0 || h.rope_dim > h.head_dim) {
    throw Error(Errc::bad_file, fmt::format("{}: needs an even number up to the head's {} elements, found {}",
                                            keys.key("rope.dimension_count"), h.head_dim, h.rope_dim));
  }
  h.rope_theta = keys.find_positive("rope.freq_base", 1e30).value_or(10000.0);  // the specification's default
  h.norm_eps = static_cast<float>(keys.positive("attention.layer_norm_rms_epsilon", 1.0));
  if (!(h.norm_eps > 0)) {
    throw Error(Errc::bad_file, fmt::format("{}: needs a value above 0 in float32", keys.key("attention.layer_norm_rms_epsilon")));
  }
  return h;
}

}  // namespace assay::model
