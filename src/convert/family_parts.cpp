// What most families read alike. Source of the keys: the GGUF specification; of what stands behind them: Hugging Face transformers 5, configuration_*.py
// and modeling_rope_utils.py.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "assay/error.h"
#include "convert/families.h"

namespace assay::converting::parts {
namespace {

// The factors by which llama3 scaling divides the frequencies, all of it in float32, as the models' own code has it.
std::vector<float> llama3_factors(Draft& draft, const Json& scaling, double theta) {
  const auto number = [&](std::string_view key) {
    const Json* value = scaling.find(key);
    if (value == nullptr) throw Error(Errc::bad_file, fmt::format("config.json: rope scaling llama3 needs {}; there is none", key));
    return number_of(*value, key);
  };
  const double factor = number("factor"), low = number("low_freq_factor"), high = number("high_freq_factor");
  const double original = number("original_max_position_embeddings");
  if (!(factor > 0) || !(low > 0) || !(high > low) || !(original > 0)) throw Error(Errc::bad_file, "config.json: rope scaling llama3 needs positive factors, low below high");
  const int64_t dim = head_dim(draft);
  std::vector<float> factors;
  const auto f_factor = static_cast<float>(factor), f_low = static_cast<float>(low), f_original = static_cast<float>(original);
  for (int64_t i = 0; i < dim; i += 2) {
    const float share = static_cast<float>(i) / static_cast<float>(dim);
    const float frequency = 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(share)));
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (static_cast<double>(wavelength) < original / high) {
      factors.push_back(1);
    } else if (static_cast<double>(wavelength) > original / low) {
      factors.push_back(f_factor);
    } else {
      const float smooth = (f_original / wavelength - f_low) / static_cast<float>(high - low);
      factors.push_back(1.0f / ((1.0f - smooth) / f_factor + smooth));
    }
  }
  return factors;
}

void yarn(Draft& draft, const Json& scaling, double factor) {
  draft.text("rope.scaling.type", "yarn");
  draft.number("rope.scaling.factor", factor);
  const Json* original = scaling.find("original_max_position_embeddings");
  if (original == nullptr || original->is_null()) original = draft.config.find("original_max_position_embeddings");
  if (original == nullptr || original->is_null()) original = draft.config.find("max_position_embeddings");
  if (original == nullptr) throw Error(Errc::bad_file, "config.json: rope scaling yarn needs original_max_position_embeddings");
  draft.count("rope.scaling.original_context_length", static_cast<int64_t>(number_of(*original, "original_max_position_embeddings")));
  const auto optional = [&](std::string_view from, std::string_view to) {
    if (const Json* value = scaling.find(from); value != nullptr && !value->is_null()) draft.number(to, number_of(*value, from));
  };
  optional("extrapolation_factor", "rope.scaling.yarn_ext_factor");
  optional("attn_factor", "rope.scaling.yarn_attn_factor");
  optional("attention_factor", "rope.scaling.yarn_attn_factor");
  optional("beta_fast", "rope.scaling.yarn_beta_fast");
  optional("beta_slow", "rope.scaling.yarn_beta_slow");
}

}  // namespace

void sizes(Draft& d) {
  Config& c = d.config;
  d.n_layers = c.count("num_hidden_layers");
  d.n_heads = c.count("num_attention_heads");
  d.n_kv_heads = c.find_count("num_key_value_heads").value_or(d.n_heads);  // null and missing: as many, in every class that has no default
  d.is_tied = c.flag("tie_word_embeddings", false);
  if (d.n_layers == 0 || d.n_layers > 4096) throw Error(Errc::bad_file, fmt::format("config.json: num_hidden_layers is {}; needs 1 to 4096", d.n_layers));
  if (d.n_heads == 0 || d.n_kv_heads == 0) throw Error(Errc::bad_file, "config.json: needs at least one head");
  d.count("block_count", d.n_layers);
  d.count("context_length", c.count("max_position_embeddings"));
  d.count("embedding_length", c.count("hidden_size"));
  d.count("feed_forward_length", c.count("intermediate_size"));
  d.count("attention.head_count", d.n_heads);
  d.count("attention.head_count_kv", d.n_kv_heads);
  if (const auto eps = c.find_number("rms_norm_eps")) d.number("attention.layer_norm_rms_epsilon", *eps);
  for (const std::string_view key : {"num_local_experts", "num_experts"}) {
    if (const auto n = c.find_count(key)) {
      if (*n > 4096) throw Error(Errc::bad_file, fmt::format("config.json: {} is {}; needs at most 4096", key, *n));
      d.n_experts = *n;
      d.count("expert_count", *n);
    }
  }
  if (const auto n = c.find_count("num_experts_per_tok")) d.count("expert_used_count", *n);
}

int64_t head_dim(Draft& d) {
  if (const auto found = d.config.find_count("head_dim")) return *found;
  const int64_t width = d.config.count("hidden_size");
  if (width % d.n_heads != 0) throw Error(Errc::bad_file, fmt::format("config.json: hidden_size is {}, which {} heads do not divide", width, d.n_heads));
  return width / d.n_heads;
}

void key_lengths(Draft& d) {
  if (const auto found = d.config.find_count("head_dim")) {
    d.count("attention.key_length", *found);
    d.count("attention.value_length", *found);
  }
}

void rope(Draft& d, const RopeOptions& options) {
  Config& c = d.config;
  static const Json kNone;
  const Json* params = c.find("rope_parameters");
  if (params == nullptr) params = c.find("rope_scaling");
  if (params == nullptr) params = &kNone;
  const Json* local = params->find("sliding_attention");
  if (const Json* full = params->find("full_attention")) params = full;
  const Json* theta = params->find("rope_theta");
  if (theta == nullptr) theta = c.find("rope_theta");
  if (theta == nullptr) throw Error(Errc::bad_file, "config.json: needs rope_theta");
  const double base = number_of(*theta, "rope_theta");
  d.number("rope.freq_base", base);
  if (options.local_theta) {
    const Json* own = local != nullptr ? local->find("rope_theta") : nullptr;
    if (own == nullptr) own = c.find("rope_local_base_freq");
    d.number("rope.freq_base_swa", own != nullptr ? number_of(*own, "rope_local_base_freq") : *options.local_theta > 0 ? *options.local_theta : base);
  }
  std::string_view type = params->text("rope_type");
  if (type.empty()) type = params->text("type");
  if (type.empty() || type == "default") return;
  if (type == "llama3" && options.llama3) return d.make("rope_freqs.weight", llama3_factors(d, *params, base));
  const Json* factor = params->find("factor");
  if ((type != "linear" && type != "yarn") || factor == nullptr) {
    throw Error(Errc::unsupported, fmt::format("config.json: rope scaling \"{}\"{} is not known for {}", type, factor == nullptr ? " without a factor" : "",
                                               d.architecture()));
  }
  if (type == "yarn") return yarn(d, *params, number_of(*factor, "factor"));
  d.text("rope.scaling.type", "linear");
  d.number("rope.scaling.factor", number_of(*factor, "factor"));
}

std::vector<bool> window_layers(Draft& d, bool (*otherwise)(int64_t layer)) {
  const std::vector<std::string> types = d.config.texts("layer_types");
  std::vector<bool> windowed;
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    if (types.empty()) {
      windowed.push_back(otherwise(layer));
      continue;
    }
    if (types.size() != static_cast<size_t>(d.n_layers)) {
      throw Error(Errc::bad_file, fmt::format("config.json: layer_types has {} entries, the model {} layers", types.size(), d.n_layers));
    }
    const std::string& type = types[static_cast<size_t>(layer)];
    if (type != "sliding_attention" && type != "full_attention") {
      throw Error(Errc::unsupported, fmt::format("config.json: layer_types holds \"{}\"; known are sliding_attention and full_attention", type));
    }
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

}  // namespace assay::converting::parts
