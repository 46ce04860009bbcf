// See hparams.h. The key names are those of the GGUF specification.
#include "model/hparams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "assay/error.h"
#include "model/arch/list.h"

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

bool rotates(std::string_view name) noexcept {
  return std::ranges::none_of(architectures(),
                              [&](const Architecture& one) { return one.name == name && !one.rotates; });
}

}  // namespace

KeyReader::KeyReader(const gguf::Metadata& metadata, std::string architecture)
    : metadata_(&metadata), architecture_(std::move(architecture)) {}

std::string KeyReader::key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }

std::string KeyReader::own(std::string_view name) const {
  read_.emplace(name);
  return key(name);
}

int64_t KeyReader::count(std::string_view name, int64_t min, int64_t max) const {
  const std::string full = own(name);
  return in_range(full, metadata_->require_unsigned(full), min, max);
}

std::optional<int64_t> KeyReader::find_count(std::string_view name, int64_t min, int64_t max) const {
  const std::string full = own(name);
  const std::optional<uint64_t> found = metadata_->find_unsigned(full);
  if (!found) return std::nullopt;
  return in_range(full, *found, min, max);
}

double KeyReader::positive(std::string_view name, double max) const {
  const std::string full = own(name);
  return in_range(full, metadata_->require_float(full), max);
}

std::optional<double> KeyReader::find_positive(std::string_view name, double max) const {
  const std::string full = own(name);
  const std::optional<double> found = metadata_->find_float(full);
  if (!found) return std::nullopt;
  return in_range(full, *found, max);
}

double KeyReader::number(std::string_view name, double otherwise) const {
  const std::string full = own(name);
  const double found = metadata_->find_float(full).value_or(otherwise);
  if (!std::isfinite(found))
    throw Error(Errc::bad_file, fmt::format("{}: needs a finite value, found {}", full, found));
  return found;
}

bool KeyReader::flag(std::string_view name, bool otherwise) const {
  return metadata_->find_bool(own(name)).value_or(otherwise);
}

std::string_view KeyReader::text(std::string_view name, std::string_view otherwise) const {
  return metadata_->find_string(own(name)).value_or(otherwise);
}

namespace {

bool is_array(const gguf::Metadata& metadata, const std::string& key) {
  const gguf::Entry* entry = metadata.find(key);
  return entry != nullptr && entry->type == gguf::ValueType::array;
}

// One value a layer; those that only predict further tokens may have none, and get the last one's.
template <class T>
void fit_to_layers(const std::string& key, std::vector<T>& found, int64_t n_layers, int64_t n_predictors) {
  if (!found.empty() && std::ssize(found) == n_layers - n_predictors)
    found.resize(static_cast<size_t>(n_layers), found.back());
  if (std::ssize(found) != n_layers)
    throw Error(Errc::bad_file, fmt::format("{}: needs {} values, one a layer, found {}", key, n_layers, found.size()));
}

}  // namespace

int64_t KeyReader::n_predictors() const {
  return static_cast<int64_t>(
      std::min<uint64_t>(metadata_->find_unsigned(key("nextn_predict_layers")).value_or(0), kLayersMax));
}

std::optional<std::vector<int64_t>> KeyReader::find_counts(std::string_view name, int64_t n_layers, int64_t min,
                                                           int64_t max) const {
  const std::string full = own(name);
  if (!is_array(*metadata_, full)) {
    const std::optional<int64_t> one = find_count(name, min, max);
    if (!one) return std::nullopt;
    return std::vector<int64_t>(static_cast<size_t>(n_layers), *one);
  }
  std::vector<int64_t> found = metadata_->find_integers(full).value();
  fit_to_layers(full, found, n_layers, n_predictors());
  for (const int64_t value : found) {
    if (value < min)
      throw Error(Errc::bad_file, fmt::format("{}: needs values from {} to {}, found {}", full, min, max, value));
    in_range(full, static_cast<uint64_t>(value), min, max);
  }
  return found;
}

std::optional<std::vector<bool>> KeyReader::find_flags(std::string_view name, int64_t n_layers) const {
  const std::string full = own(name);
  if (!is_array(*metadata_, full)) return std::nullopt;
  std::vector<bool> found;
  if (metadata_->find(full)->element_type == gguf::ValueType::boolean) {
    found = metadata_->find_bools(full).value();
  } else {  // flags as numbers
    const std::vector<int64_t> numbers = metadata_->find_integers(full).value();
    for (const int64_t value : numbers) found.push_back(value != 0);
  }
  fit_to_layers(full, found, n_layers, n_predictors());
  return found;
}

std::vector<bool> KeyReader::windowed_layers(int64_t n_layers, int64_t period, bool last_full) const {
  if (auto flags = find_flags("attention.sliding_window_pattern", n_layers)) return *flags;
  period = find_count("attention.sliding_window_pattern", 1, kLayersMax).value_or(period);
  std::vector<bool> windowed;
  for (int64_t layer = 0; layer < n_layers; ++layer)
    windowed.push_back(last_full ? layer % period < period - 1 : layer % period != 0);
  return windowed;
}

// Keys that change what a model computes; absent or at their neutral value they do nothing.
void KeyReader::refuse_unread() const {
  struct Key {
    std::string_view name;
    double neutral;
  };
  constexpr Key kEffects[] = {
      {"attention.clamp_kqv", 0},
      {"attention.max_alibi_bias", 0},
      {"attn_logit_softcapping", 0},
      {"final_logit_softcapping", 0},
      {"attention.scale", 0},
      {"attention.temperature_scale", 0},
      {"logit_scale", 1},
      {"embedding_scale", 1},
      {"residual_scale", 1},
      {"expert_count", 0},
      {"attention.value_scale", 1},
      {"attention.shared_kv_layers", 0},
      {"embedding_length_per_layer_input", 0},
      {"moe_latent_size", 0},
      {"attention.indexer.top_k", 0},
      {"hyper_connection.count", 0},
      {"attention.kv_lora_rank", 0},
      {"nextn_predict_layers", 0},
  };
  for (const Key& entry : kEffects) {
    const std::string full = key(entry.name);
    if (read_.contains(std::string(entry.name)) || !metadata_->has(full)) continue;
    const gguf::Entry* found = metadata_->find(full);
    const double value = found->type == gguf::ValueType::f32 || found->type == gguf::ValueType::f64
                             ? metadata_->require_float(full)
                             : static_cast<double>(metadata_->require_unsigned(full));
    if (value != 0 && value != entry.neutral) {
      throw Error(Errc::unsupported,
                  fmt::format("{} = {}: this build does not serve {} models that use it", full, value, architecture_));
    }
  }
  const std::string causal = key("attention.causal");
  if (!read_.contains("attention.causal") && !metadata_->find_bool(causal).value_or(true)) {
    throw Error(Errc::unsupported,
                fmt::format("{} = false: this build serves causal {} models only", causal, architecture_));
  }
}

Hparams read_hparams(const KeyReader& keys) {
  Hparams h;
  const auto eps = [&](std::string_view name) {
    const std::optional<double> found = keys.find_positive(name, 1.0);
    const auto rounded = static_cast<float>(found.value_or(0));
    if (found && !(rounded > 0))
      throw Error(Errc::bad_file, fmt::format("{}: needs a value above 0 in float32", keys.key(name)));
    return rounded;
  };
  h.pooling_type = keys.find_count("pooling_type", 0, 4).value_or(0);
  h.norm_eps = eps("attention.layer_norm_rms_epsilon");
  h.layer_norm_eps = eps("attention.layer_norm_epsilon");
  h.n_layers = keys.count("block_count", 1, kLayersMax);
  h.n_ctx_train = keys.count("context_length", 1, kContextMax);
  h.d_model = keys.count("embedding_length", 1, kWidthMax);
  const std::vector<int64_t> none(static_cast<size_t>(h.n_layers), 0);
  h.d_ff_of = keys.find_counts("feed_forward_length", h.n_layers, 0, kWidthMax).value_or(none);
  h.n_heads_of = keys.find_counts("attention.head_count", h.n_layers, 0, kHeadsMax).value_or(none);
  h.n_kv_heads_of = keys.find_counts("attention.head_count_kv", h.n_layers, 0, kHeadsMax).value_or(h.n_heads_of);
  h.d_ff = std::ranges::max(h.d_ff_of);
  h.n_heads = std::ranges::max(h.n_heads_of);
  h.n_kv_heads = std::ranges::max(h.n_kv_heads_of);
  if (h.n_heads == 0) return h;  // no attention: a family of states
  if (h.n_kv_heads == 0 && !is_array(keys.metadata(), keys.key("attention.head_count_kv"))) {
    throw Error(Errc::bad_file,
                fmt::format("{}: needs a divisor of {} ({}), found 0", keys.key("attention.head_count_kv"), h.n_heads,
                            keys.key("attention.head_count")));
  }
  for (size_t layer = 0; layer < h.n_heads_of.size(); ++layer) {
    if (h.n_kv_heads_of[layer] != 0 && h.n_heads_of[layer] % h.n_kv_heads_of[layer] != 0) {
      throw Error(Errc::bad_file,
                  fmt::format("{}: layer {} needs a divisor of {} ({}), found {}", keys.key("attention.head_count_kv"),
                              layer, h.n_heads_of[layer], keys.key("attention.head_count"), h.n_kv_heads_of[layer]));
    }
  }
  if (const auto head_dim = keys.find_count("attention.key_length", 1, kHeadDimMax)) {
    h.head_dim = *head_dim;
  } else if (h.d_model % h.n_heads == 0 && h.d_model / h.n_heads <= kHeadDimMax) {
    h.head_dim = h.d_model / h.n_heads;
  } else {
    throw Error(Errc::bad_file,
                fmt::format("{}: needs to be there or {} ({}) to divide {} ({}) into heads of at most {}",
                            keys.key("attention.key_length"), keys.key("attention.head_count"), h.n_heads,
                            keys.key("embedding_length"), h.d_model, kHeadDimMax));
  }
  // The specification: d_model / n_heads, also where keys have a width of their own.
  const int64_t even_share = h.d_model % h.n_heads == 0 ? h.d_model / h.n_heads : h.head_dim;
  h.value_dim = keys.find_count("attention.value_length", 1, kHeadDimMax).value_or(std::min(even_share, kHeadDimMax));
  h.rope_dim = keys.find_count("rope.dimension_count", 1, kHeadDimMax).value_or(h.head_dim);
  if (!rotates(keys.architecture())) {
    h.rope_dim = h.head_dim;
  } else if (h.rope_dim % 2 != 0 || h.rope_dim > h.head_dim) {
    throw Error(Errc::bad_file, fmt::format("{}: needs an even number up to the head's {} elements, found {}",
                                            keys.key("rope.dimension_count"), h.head_dim, h.rope_dim));
  }
  h.rope_theta = keys.find_positive("rope.freq_base", 1e30).value_or(10000.0);  // the specification's default
  return h;
}

}  // namespace assay::model
