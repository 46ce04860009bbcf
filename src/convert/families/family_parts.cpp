// What most families read alike. Source of the keys: the GGUF specification; of what stands behind them: Hugging Face
// transformers 5, configuration_*.py and modeling_rope_utils.py.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "assay/error.h"
#include "base/shown.h"
#include "convert/families/families.h"

namespace assay::converting::parts {
namespace {

// The factors by which llama3 scaling divides the frequencies, all of it in float32, as the models' own code has it.
std::vector<float> llama3_factors(Draft& draft, const Json& scaling, double theta) {
  const auto number = [&](std::string_view key) {
    const Json* value = scaling.find(key);
    if (value == nullptr)
      throw Error(Errc::bad_file, fmt::format("config.json: rope scaling llama3 needs {}; there is none", key));
    return number_of(*value, key);
  };
  const double factor = number("factor"), low = number("low_freq_factor"), high = number("high_freq_factor");
  const double original = number("original_max_position_embeddings");
  if (!(factor > 0) || !(low > 0) || !(high > low) || !(original > 0))
    throw Error(Errc::bad_file, "config.json: rope scaling llama3 needs positive factors, low below high");
  const int64_t dim = head_dim(draft);
  std::vector<float> factors;
  const auto f_factor = static_cast<float>(factor), f_low = static_cast<float>(low),
             f_original = static_cast<float>(original);
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

// YaRN's magnitude where mscale and mscale_all_dim are there; neither has a key of its own.
void yarn_scales(Draft& draft, const Json& scaling, double factor, const RopeOptions& options) {
  const auto scale = [&](const char* name) {
    const Json* value = scaling.find(name);
    return value == nullptr || value->is_null() ? 0 : number_of(*value, name);
  };
  const double own = scale("mscale"), all = scale("mscale_all_dim");
  if (own == 0 || all == 0) return;
  const double stated = yarn_magnitude(factor, own) / yarn_magnitude(factor, all);
  const double meant = options.magnitude != nullptr ? options.magnitude(factor, all) : yarn_magnitude(factor, 1);
  if (std::abs(stated - meant) > 1e-9) draft.number("rope.scaling.yarn_attn_factor", stated);
}

void yarn(Draft& draft, const Json& scaling, double factor, const RopeOptions& options) {
  yarn_scales(draft, scaling, factor, options);
  draft.text("rope.scaling.type", "yarn");
  draft.number("rope.scaling.factor", factor);
  const Json* original = scaling.find("original_max_position_embeddings");
  if (original == nullptr || original->is_null()) original = draft.config.find("original_max_position_embeddings");
  if (original == nullptr || original->is_null()) original = draft.config.find("max_position_embeddings");
  if (original == nullptr)
    throw Error(Errc::bad_file, "config.json: rope scaling yarn needs original_max_position_embeddings");
  draft.count("rope.scaling.original_context_length",
              whole_of(number_of(*original, "original_max_position_embeddings"), "original_max_position_embeddings"));
  const auto optional = [&](std::string_view from, std::string_view to) {
    if (const Json* value = scaling.find(from); value != nullptr && !value->is_null())
      draft.number(to, number_of(*value, from));
  };
  optional("extrapolation_factor", "rope.scaling.yarn_ext_factor");
  optional("attn_factor", "rope.scaling.yarn_attn_factor");
  optional("attention_factor", "rope.scaling.yarn_attn_factor");
  optional("beta_fast", "rope.scaling.yarn_beta_fast");
  optional("beta_slow", "rope.scaling.yarn_beta_slow");
}

}  // namespace

void layers_and_heads(Draft& d, std::string_view layers_key, std::string_view heads_key) {
  d.n_layers = d.config.count(layers_key);
  d.n_heads = d.n_kv_heads = d.config.count(heads_key);
  if (d.n_layers == 0 || d.n_layers > 4096)
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}; needs 1 to 4096", layers_key, d.n_layers));
  if (d.n_heads == 0 || d.n_heads > 65536)
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}; needs 1 to 65536", heads_key, d.n_heads));
}

int64_t n_experts(Draft& d, std::string_view key) {
  const int64_t n = d.config.count(key);
  if (n > 4096) throw Error(Errc::bad_file, fmt::format("config.json: {} is {}; needs at most 4096", key, n));
  d.n_experts = n;
  d.count("expert_count", n);
  return n;
}

namespace {

void expert_sizes(Draft& d) {
  Config& c = d.config;
  for (const std::string_view key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (c.has(key)) n_experts(d, key);
  }
  const auto count = [&](std::initializer_list<std::string_view> keys, std::string_view to) {
    for (const std::string_view key : keys) {
      if (const auto n = c.find_count(key)) return d.count(to, *n);
    }
  };
  count({"num_experts_per_tok", "num_experts_per_token", "top_k_experts"}, "expert_used_count");
  count({"n_group"}, "expert_group_count");
  count({"topk_group"}, "expert_group_used_count");
  for (const std::string_view key : {"scoring_func", "score_function", "score_func", "moe_router_activation",
                                     "moe_router_activation_func", "expert_selection_fn"}) {
    const std::string kind = c.text(key);
    if (kind.empty()) continue;
    if (kind != "softmax" && kind != "sigmoid")
      throw Error(Errc::unsupported, fmt::format("config.json: {} is {}; needs softmax or sigmoid", key, kind));
    d.count("expert_gating_func", kind == "softmax" ? 1 : 2);
  }
}

}  // namespace

void sizes(Draft& d, const SizeOptions& options) {
  Config& c = d.config;
  layers_and_heads(d, "num_hidden_layers", "num_attention_heads");
  if (options.has_kv_heads)
    d.n_kv_heads = c.find_count("num_key_value_heads")
                       .value_or(d.n_heads);  // null and missing: as many, in every class that has no default
  d.is_tied = c.flag("tie_word_embeddings", false);
  if (d.n_kv_heads == 0) throw Error(Errc::bad_file, "config.json: needs at least one head");
  d.count("block_count", d.n_layers);
  d.count("context_length", c.count(options.context_key));
  d.count("embedding_length", c.count("hidden_size"));
  if (options.has_ffn_width) d.count("feed_forward_length", c.count("intermediate_size"));
  d.count("attention.head_count", d.n_heads);
  if (options.has_kv_heads) d.count("attention.head_count_kv", d.n_kv_heads);
  if (const auto eps = c.find_number("rms_norm_eps")) d.number("attention.layer_norm_rms_epsilon", *eps);
  for (const std::string_view key : {"layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"}) {
    if (const auto eps = c.find_number(key)) d.number("attention.layer_norm_epsilon", *eps);
  }
  if (options.has_experts) expert_sizes(d);
}

int64_t head_dim(Draft& d) {
  if (const auto found = d.config.find_count("head_dim")) return *found;
  const int64_t width = d.config.count("hidden_size");
  if (width % d.n_heads != 0)
    throw Error(Errc::bad_file,
                fmt::format("config.json: hidden_size is {}, which {} heads do not divide", width, d.n_heads));
  return width / d.n_heads;
}

void key_lengths(Draft& d) {
  if (const auto found = d.config.find_count("head_dim")) {
    d.count("attention.key_length", *found);
    d.count("attention.value_length", *found);
  }
}

double yarn_magnitude(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

double rope(Draft& d, const RopeOptions& options) {
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
  const Json* own = local != nullptr ? local->find("rope_theta") : nullptr;
  if (own == nullptr) own = c.find_any({"rope_local_base_freq", "swa_rope_theta"});
  if (own != nullptr) {
    d.number("rope.freq_base_swa", number_of(*own, "rope_local_base_freq"));
  } else if (options.local_theta) {
    d.number("rope.freq_base_swa", *options.local_theta > 0 ? *options.local_theta : base);
  }
  std::string_view type = params->text("rope_type");
  if (type.empty()) type = params->text("type");
  if (type.empty() || type == "default" || type == options.known_type) return base;
  if (type == "llama3" && options.llama3) {
    d.make("rope_freqs.weight", llama3_factors(d, *params, base));
    return base;
  }
  const Json* factor = params->find("factor");
  if ((type != "linear" && type != "yarn") || factor == nullptr || !options.scaling) {
    throw Error(Errc::unsupported, fmt::format("config.json: rope scaling \"{}\"{} is not known for {}", type,
                                               factor == nullptr ? " without a factor" : "", d.architecture()));
  }
  if (type == "yarn") {
    yarn(d, *params, number_of(*factor, "factor"), options);
    return base;
  }
  d.text("rope.scaling.type", "linear");
  d.number("rope.scaling.factor", number_of(*factor, "factor"));
  return base;
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
      throw Error(Errc::bad_file, fmt::format("config.json: layer_types has {} entries, the model {} layers",
                                              types.size(), d.n_layers));
    }
    const std::string& type = types[static_cast<size_t>(layer)];
    if (type != "sliding_attention" && type != "full_attention") {
      throw Error(
          Errc::unsupported,
          fmt::format("config.json: layer_types holds \"{}\"; known are sliding_attention and full_attention", type));
    }
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

// Classes that derive head_dim where config.json has none say it nonetheless.
void derive_head_dim(Draft& d) {
  const int64_t dim = head_dim(d);
  d.count("attention.key_length", dim);
  d.count("attention.value_length", dim);
}

void llama_keys(Draft& d) {
  sizes(d);
  key_lengths(d);
  d.count("vocab_size", d.config.count("vocab_size"));
  d.count("rope.dimension_count", parts::head_dim(d));
  const bool has_multiplier = d.config.text("model_type") == "ministral3";  // as mistral3 files have it
  rope(d, {.llama3 = true,
           .magnitude =
               has_multiplier
                   ? +[](double factor, double all) { return yarn_magnitude(factor, 1) / yarn_magnitude(factor, all); }
                   : nullptr});
  d.config.expect("hidden_act", {"silu"});
}

double share(double value, std::string_view key) {
  if (!(value > 0) || value > 1)
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}; needs more than 0, at most 1", key, value));
  return value;
}

double rotary_share(Draft& d, std::initializer_list<std::string_view> keys, std::optional<double> otherwise) {
  if (const Json* params = d.config.find("rope_parameters")) {
    if (const Json* found = params->find("partial_rotary_factor"))
      return share(number_of(*found, "partial_rotary_factor"), "partial_rotary_factor");
  }
  for (const std::string_view key : keys) {
    if (const auto found = d.config.find_number(key)) return share(*found, key);
  }
  if (otherwise) return *otherwise;
  throw Error(Errc::bad_file, fmt::format("config.json: needs {}", *keys.begin()));
}

void require_usual_base(Draft& d, std::string_view key, std::string_view known_type) {
  const Json* params = d.config.find_any({"rope_parameters", "rope_scaling"});
  const Json* theta = params != nullptr ? params->find("rope_theta") : nullptr;
  if (theta == nullptr) theta = d.config.find(key);
  if (theta == nullptr) theta = d.config.find("rope_theta");
  std::string_view type = params == nullptr ? std::string_view() : params->text("rope_type");
  if (type.empty() && params != nullptr) type = params->text("type");
  if ((theta != nullptr && number_of(*theta, key) != 10000) ||
      (!type.empty() && type != "default" && type != known_type)) {
    throw Error(
        Errc::unsupported,
        fmt::format("config.json: {} files have no key for a base of the rotation other than 10000, nor for scaling",
                    d.architecture()));
  }
}

void long_factors(Draft& d, const Json& scaling, int64_t n) {
  for (const std::string_view part : {"long", "short"}) {
    const std::string key = fmt::format("{}_factor", part);
    const Json* found = scaling.find(key);
    if (found == nullptr || found->array() == nullptr || found->array()->size() != static_cast<size_t>(n)) {
      throw Error(Errc::bad_file, fmt::format("config.json: rope_scaling needs {}, an array of {} numbers", key, n));
    }
    std::vector<float> factors;
    for (const Json& one : *found->array()) factors.push_back(static_cast<float>(number_of(one, key)));
    d.make(fmt::format("rope_factors_{}.weight", part), std::move(factors));
  }
}

double long_rope_factor(int64_t context, int64_t original) {
  if (original < 2 || context <= original) return 1;
  return std::sqrt(1 + std::log(static_cast<double>(context) / static_cast<double>(original)) /
                           std::log(static_cast<double>(original)));
}

// The folder's list of what follows the model names the pooling's own folder.
void pooling(Draft& d) {
  constexpr int64_t kMean = 1, kCls = 2, kLast = 3;
  const auto kind_of = [](std::string_view name) {
    return name == "mean" ? kMean : name == "cls" ? kCls : name == "lasttoken" ? kLast : int64_t{0};
  };
  if (const auto modules = d.folder.json_of("modules.json"); modules && modules->array() != nullptr) {
    for (const Json& one : *modules->array()) {
      if (!one.text("type").ends_with("Pooling")) continue;
      const std::string path(one.text("path"));
      if (path.empty() || path.find('/') != std::string::npos || path == "..")
        throw Error(Errc::bad_file,
                    fmt::format("modules.json: the pooling is in {}; needs a folder of this one", base::shown(path)));
      const auto config = d.folder.json_of(path + "/config.json");
      if (!config)
        throw Error(Errc::bad_file,
                    fmt::format("modules.json: the pooling is in {}, which has no config.json", base::shown(path)));
      int64_t kind = config->flag("pooling_mode_mean_tokens") ? kMean
                     : config->flag("pooling_mode_cls_token") ? kCls
                     : config->flag("pooling_mode_lasttoken") ? kLast
                                                              : kind_of(config->text("pooling_mode"));
      if (kind == 0)
        throw Error(Errc::unsupported,
                    fmt::format("{}/config.json: the pooling is none of mean, CLS and last token", path));
      d.count("pooling_type", kind);
      break;
    }
  }
  if (const std::string name = d.config.text("classifier_pooling"); kind_of(name) == kMean || kind_of(name) == kCls) {
    d.count("classifier.pooling_type", kind_of(name));
  }
}

// A bias is there if and only if config.json says so.
void check_bias(Draft& d, std::string_view flag, std::string_view tensor, bool otherwise) {
  const bool wanted = d.config.flag(flag, otherwise);
  const bool found = std::any_of(d.outputs.begin(), d.outputs.end(), [&](const Output& o) { return o.name == tensor; });
  if (wanted != found) {
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}, but the folder has {} {}", flag, wanted,
                                            found ? "a" : "no", tensor));
  }
}

// A window that config.json has and the family's file has no key for.
void note_window(Draft& d, std::string_view key) {
  const auto window = d.config.find_count(key);
  if (!window || *window >= d.config.count("max_position_embeddings")) return;
  d.notes.push_back(fmt::format(
      "config.json: {} = {} has no key in {} files; every token sees all before it, so answers differ beyond {} tokens",
      key, *window, d.architecture(), *window));
}

void require_no_window(Draft& d) {
  if (d.config.flag("use_sliding_window", false)) {
    throw Error(
        Errc::unsupported,
        fmt::format("config.json: use_sliding_window is true; {} files have no key for windows", d.architecture()));
  }
  d.config.mark_read("sliding_window");
  d.config.mark_read("layer_types");
}

// Families of experts in every layer: layers without them have no place in the file's keys.
void require_experts_everywhere(Draft& d) {
  const Json* dense = d.config.find("mlp_only_layers");
  if ((dense != nullptr && dense->array() != nullptr && !dense->array()->empty()) ||
      d.config.find_count("decoder_sparse_step").value_or(1) != 1) {
    throw Error(Errc::unsupported, fmt::format("config.json: mlp_only_layers or decoder_sparse_step leave layers "
                                               "without experts; {} files have them in all",
                                               d.architecture()));
  }
}

void require_norm_of_router(Draft& d, std::string_view key) {
  if (!d.config.flag(key, true))
    throw Error(Errc::unsupported,
                fmt::format("config.json: {} is false; {} files have no key for it, and routers are normalised", key,
                            d.architecture()));
}

FamilyOptions glm4_vocabulary() {
  return {
      .pre_of = "glm4",
      .special_texts = {{"bos", "[gMASK]"}, {"eot", "<|user|>"}, {"unk", "<|endoftext|>"}, {"eom", "<|observation|>"}}};
}

}  // namespace assay::converting::parts
