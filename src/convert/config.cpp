// See config.h.
#include "convert/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "assay/error.h"
#include "base/shown.h"

namespace assay::converting {
namespace {

constexpr int64_t kCountMax = 0x7FFFFFFF;  // the product of any two still fits

// Keys that say nothing about what the weights compute: training, caching, what transformers returns, who saved it.
// clang-format off
constexpr std::array kWithoutEffect = {
    "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "_sliding_window_pattern", "architectures", "attention_dropout", "auto_map",
    "attn_implementation", "bos_token_id", "cache_implementation", "chunk_size_feed_forward", "classifier_dropout", "dtype", "embd_pdrop",
    "embedding_dropout", "eos_token_id", "ffn_dropout", "hidden_dropout", "hidden_dropout_prob", "id2label", "initializer_range", "is_decoder",
    "is_encoder_decoder", "label2id", "layer_norm_init", "mask_token_id", "model_type", "output_attentions", "output_hidden_states",
    "output_router_logits", "pad_token_id", "pretraining_tp", "problem_type", "residual_dropout", "resid_pdrop", "return_dict",
    "rope_parameters", "rope_scaling", "rope_theta", "router_aux_loss_coef", "router_jitter_noise", "sep_token_id", "text_config", "tie_word_embeddings",
    "tokenizer_class", "torch_dtype", "transformers_version", "transformers.js_config", "unk_token_id", "unsloth_fixed", "unsloth_version", "use_cache",
    "vision_config", "boi_token_index", "eoi_token_index", "image_token_index", "mm_tokens_per_image", "image_token_id", "boi_token_id", "eoi_token_id",
    "max_window_layers", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "summary_type", "summary_use_proj", "attn_pdrop", "activation_dropout", "mlp_dropout", "output_dropout",
    "gradient_checkpointing", "bad_words_ids", "temperature", "top_k", "top_p", "do_sample", "keys_to_ignore_at_inference", "z_loss_coefficient", "aux_loss_alpha", "seq_aux", "init_std", "attention_probs_dropout_prob"};
// clang-format on

}  // namespace

double number_of(const Json& value, std::string_view key) {
  if (value.number() == nullptr)
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}; needs a number", key, value.shown()));
  return value.number()->value;
}

int64_t whole_of(double value, std::string_view key) {
  if (!(value >= 0) || value > static_cast<double>(kCountMax)) {
    throw Error(Errc::bad_file,
                fmt::format("config.json: {} gives {}; needs a number of 0 to {}", key, value, kCountMax));
  }
  return static_cast<int64_t>(value);
}

Config::Config(const Json& root, std::string_view defaults) {
  if (!defaults.empty()) defaults_ = Json::parse(defaults, "defaults");
  merged_ = root;
  if (const Json* text = root.find("text_config"); text != nullptr && text->object() != nullptr) {
    for (const auto& [key, value] : *text->object()) merged_.set(key, value);
  }
}

const Json* Config::find(std::string_view key) {
  const bool is_first = read_.emplace(key).second;
  const Json* found = merged_.find(key);
  if (found == nullptr) {
    found = defaults_.find(key);
    if (found != nullptr && is_first && !found->is_null())
      defaults_used_.push_back(fmt::format("{} = {}", key, found->shown()));
  }
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Json* Config::find_any(std::initializer_list<std::string_view> keys) {
  const Json* first = nullptr;
  for (const std::string_view key : keys) {
    const Json* found = find(key);
    if (first == nullptr) first = found;
  }
  return first;
}

std::optional<int64_t> Config::find_count(std::string_view key) {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  const JsonNumber* n = found->number();
  if (n == nullptr || !n->integer || *n->integer < 0 || *n->integer > kCountMax) {
    throw Error(Errc::bad_file,
                fmt::format("config.json: {} is {}; needs a whole number of 0 to {}", key, found->shown(), kCountMax));
  }
  return *n->integer;
}

int64_t Config::count(std::string_view key) {
  const auto found = find_count(key);
  if (!found)
    throw Error(
        Errc::bad_file,
        fmt::format("config.json: needs {}; there is none, and Hugging Face's class has no default for it", key));
  return *found;
}

std::optional<double> Config::find_number(std::string_view key) {
  const Json* found = find(key);
  return found == nullptr ? std::nullopt : std::optional(number_of(*found, key));
}

double Config::number(std::string_view key) {
  const auto found = find_number(key);
  if (!found)
    throw Error(
        Errc::bad_file,
        fmt::format("config.json: needs {}; there is none, and Hugging Face's class has no default for it", key));
  return *found;
}

bool Config::flag(std::string_view key, bool otherwise) {
  const Json* found = find(key);
  if (found == nullptr) return otherwise;
  if (found->boolean() == nullptr)
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}; needs true or false", key, found->shown()));
  return *found->boolean();
}

std::string Config::text(std::string_view key) {
  const Json* found = find(key);
  if (found == nullptr) return {};
  if (found->string() == nullptr)
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}; needs a string", key, found->shown()));
  return *found->string();
}

std::vector<std::string> Config::texts(std::string_view key) {
  std::vector<std::string> all;
  const Json* found = find(key);
  if (found == nullptr) return all;
  if (found->array() == nullptr)
    throw Error(Errc::bad_file, fmt::format("config.json: {} is {}; needs an array of strings", key, found->shown()));
  for (const Json& one : *found->array()) {
    if (one.string() == nullptr)
      throw Error(Errc::bad_file, fmt::format("config.json: {} holds {}; needs strings", key, one.shown()));
    all.push_back(*one.string());
  }
  return all;
}

std::vector<int64_t> Config::counts(std::string_view key) {
  std::vector<int64_t> all;
  const Json* found = find(key);
  if (found == nullptr) return all;
  if (found->array() == nullptr)
    throw Error(Errc::bad_file,
                fmt::format("config.json: {} is {}; needs an array of whole numbers", key, found->shown()));
  for (const Json& one : *found->array()) {
    if (one.number() == nullptr || !one.number()->integer || *one.number()->integer < 0 ||
        *one.number()->integer > kCountMax) {
      throw Error(Errc::bad_file,
                  fmt::format("config.json: {} holds {}; needs whole numbers of 0 to {}", key, one.shown(), kCountMax));
    }
    all.push_back(*one.number()->integer);
  }
  return all;
}

void Config::expect(std::string_view key, std::initializer_list<std::string_view> values) {
  const Json* found = find(key);
  if (found == nullptr) return;
  if (found->string() != nullptr && std::find(values.begin(), values.end(), *found->string()) != values.end()) return;
  throw Error(Errc::unsupported,
              fmt::format("config.json: {} is {}; needs {}", key, found->shown(), fmt::join(values, " or ")));
}

void Config::expect_flag(std::string_view key, bool value) {
  if (flag(key, value) != value)
    throw Error(Errc::unsupported, fmt::format("config.json: {} is {}; GGUF has no key for that", key, !value));
}

std::vector<std::string> Config::unread() const {
  std::vector<std::string> all;
  if (merged_.object() == nullptr) return all;
  for (const auto& [key, value] : *merged_.object()) {
    if (read_.contains(key) || std::find(kWithoutEffect.begin(), kWithoutEffect.end(), key) != kWithoutEffect.end())
      continue;
    all.push_back(fmt::format("{} = {}", base::shown(key), value.shown()));
  }
  return all;
}

}  // namespace assay::converting
