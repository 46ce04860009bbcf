// The rules about hyper-parameters and tensors; lint_text.cpp has those about vocabulary and
// template.
#include "measure/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "model/usual.h"

namespace assay::measure {
namespace {

class Lint {
 public:
  void warn(std::string_view rule, std::string message) {
    found_.push_back({std::string(rule), LintLevel::warning, std::move(message)});
  }
  void fail(std::string_view rule, std::string message) {
    found_.push_back({std::string(rule), LintLevel::error, std::move(message)});
  }
  std::vector<LintFinding> take() { return std::move(found_); }

 private:
  std::vector<LintFinding> found_;
};

std::string architecture_of(const gguf::File& file) {
  for (const gguf::Entry& entry : file.metadata().entries()) {
    if (entry.key == "general.architecture" && entry.type == gguf::ValueType::string) {
      return {reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()};
    }
  }
  return {};
}

// Keys of the architecture that loading did not look at: they may change results in another engine.
// A vocabulary alone was never loaded.
void check_unread(const gguf::File& file, const std::string& architecture, Lint& lint) {
  constexpr std::string_view kHarmless[] = {"vocab_size", "rope.dimension_sections", "attention.layer_norm_epsilon"};
  if (file.tensors().empty()) return;
  for (const gguf::Entry& entry : file.metadata().entries()) {
    if (architecture.empty() || !entry.key.starts_with(architecture + ".") ||
        entry.read.load(std::memory_order_relaxed))
      continue;
    const std::string_view name = entry.key.substr(architecture.size() + 1);
    if (std::find(std::begin(kHarmless), std::end(kHarmless), name) != std::end(kHarmless)) continue;
    lint.warn("unread_key", fmt::format("{}: nothing here reads this key of the architecture", entry.key));
  }
}

void check_vocabulary_rows(const LintInput& in, const std::string& architecture, Lint& lint) {
  const gguf::Tensor* table = in.file.find("token_embd.weight");
  const std::string key = architecture + ".vocab_size";
  if (table == nullptr || !in.file.metadata().has(key)) return;
  const auto stated = static_cast<int64_t>(in.file.metadata().find_unsigned(key).value_or(0));
  if (stated != table->view.shape.rows()) {
    lint.fail("vocab_size",
              fmt::format("{} is {}, token_embd.weight has {} rows", key, stated, table->view.shape.rows()));
  }
}

// What a finding about a key is called, and the key in words; other keys are named as they are.
struct KeyRule {
  std::string_view key, rule, words;
};
constexpr KeyRule kKeyRules[] = {{"rope.freq_base", "rope_base", "the base of RoPE"},
                                 {"attention.layer_norm_rms_epsilon", "norm_eps", "the epsilon of the norms"},
                                 {"attention.layer_norm_epsilon", "norm_eps", "the epsilon of the norms"}};

bool is_one_of(double value, std::span<const double> usual) {
  return std::ranges::any_of(usual, [value](double x) { return x != 0 && std::abs(value - x) <= 1e-5 * std::abs(x); });
}

std::string shown(std::span<const double> usual) {
  std::string text;
  for (const double x : usual) {
    if (x != 0) text += fmt::format("{}{:g}", text.empty() ? "" : ", ", x);
  }
  return text;
}

// The numbers of a key: a scalar, or every element of an array.
std::vector<double> numbers_of(const gguf::Metadata& metadata, const std::string& key) {
  using gguf::ValueType;
  const auto entry = std::ranges::find(metadata.entries(), key, &gguf::Entry::key);
  if (entry == metadata.entries().end() || entry->type == ValueType::string || entry->type == ValueType::boolean)
    return {};
  if (entry->type == ValueType::array) {
    if (entry->element_type == ValueType::f32 || entry->element_type == ValueType::f64) {
      const std::vector<float> found = metadata.find_floats(key).value();
      return {found.begin(), found.end()};
    }
    if (entry->element_type == ValueType::string || entry->element_type == ValueType::boolean ||
        entry->element_type == ValueType::array)
      return {};
    const std::vector<int64_t> found = metadata.find_integers(key).value();
    return {found.begin(), found.end()};
  }
  if (entry->type == ValueType::f32 || entry->type == ValueType::f64) return {metadata.find_float(key).value()};
  return {static_cast<double>(metadata.find_integer(key).value())};
}

void check_usual_values(const LintInput& in, const std::string& architecture, Lint& lint) {
  const auto has_own = [&](std::string_view key) {
    return std::ranges::any_of(model::usual_values(), [&](const model::UsualValue& row) {
      return row.architecture == architecture && row.key == key;
    });
  };
  for (const model::UsualValue& row : model::usual_values()) {
    if (row.architecture.empty() ? has_own(row.key) : row.architecture != architecture) continue;
    const std::string key = fmt::format("{}.{}", architecture, row.key);
    const std::vector<double> found = numbers_of(in.file.metadata(), key);
    const auto odd = std::ranges::find_if(found, [&](double x) { return x != 0 && !is_one_of(x, row.values); });
    if (odd == found.end()) continue;
    const auto rule = std::ranges::find(kKeyRules, row.key, &KeyRule::key);
    if (rule == std::end(kKeyRules)) {
      lint.warn("usual_value",
                fmt::format("{} is {:g}; known {} models have {}", key, *odd, architecture, shown(row.values)));
    } else {
      lint.warn(rule->rule,
                fmt::format("{} is {:g}; known {} models have {}", rule->words, *odd, architecture, shown(row.values)));
    }
  }
}

void check_heads(const LintInput& in, const model::Hparams& h, const std::string& architecture, Lint& lint) {
  const bool is_latent =
      in.file.metadata().has(architecture + ".attention.kv_lora_rank");  // its keys are wider than a head's
  if (h.n_heads > 0 && !is_latent && (h.head_dim % 8 != 0 || h.head_dim > 512)) {
    lint.warn("heads", fmt::format("heads of {} elements ({} of them, model width {}): known "
                                   "models have 32 to 512, a multiple of 8",
                                   h.head_dim, h.n_heads, h.d_model));
  }
  const int64_t width = h.n_heads * h.head_dim;
  if (h.n_heads > 0 && !is_latent && (width > 8 * h.d_model || 4 * width < h.d_model)) {
    lint.warn("heads", fmt::format("{} heads of {} elements make {}, the model's width is {}", h.n_heads, h.head_dim,
                                   width, h.d_model));
  }
  const bool has_experts = in.file.metadata().has(architecture + ".expert_count");  // each may be narrow
  if (h.d_ff > 0 && ((!has_experts && h.d_ff < h.d_model) || h.d_ff > 16 * h.d_model)) {
    lint.warn("d_ff", fmt::format("the feed-forward width {} is {:.2f} times the model's width {}: known "
                                  "models have 1 to 16",
                                  h.d_ff, static_cast<double>(h.d_ff) / static_cast<double>(h.d_model), h.d_model));
  }
}

void check_rope(const LintInput& in, const model::Hparams& h, const std::string& architecture, int64_t n_vocab,
                Lint& lint) {
  const gguf::Metadata& metadata = in.file.metadata();
  const auto rotation = std::ranges::find(model::usual_rotations(), architecture, &model::UsualRotation::architecture);
  constexpr double kWhole[] = {1.0};
  const std::span<const double> shares =
      rotation == model::usual_rotations().end() ? std::span<const double>(kWhole) : rotation->shares;
  const double share = h.head_dim > 0 ? static_cast<double>(h.rope_dim) / static_cast<double>(h.head_dim) : 0;
  const bool is_latent = metadata.has(architecture + ".attention.kv_lora_rank");
  // A file that does not say how many rotates what the architecture's default is.
  if (metadata.has(architecture + ".rope.dimension_count") && !is_latent && h.head_dim > 0 &&
      !is_one_of(share, shares)) {
    lint.warn(
        "rope_dim",
        fmt::format("{} of a head's {} elements are rotated: {} models rotate {}", h.rope_dim, h.head_dim, architecture,
                    rotation == model::usual_rotations().end() ? "all" : fmt::format("a share of {}", shown(shares))));
  }
  const bool is_scaled = metadata.has(architecture + ".rope.scaling.type") ||
                         metadata.has(architecture + ".rope.scaling.factor") ||
                         in.file.find("rope_freqs.weight") != nullptr;
  const bool has_window = metadata.has(architecture + ".attention.sliding_window");
  for (const model::UsualContext& row : model::usual_contexts()) {
    if (row.architecture != architecture || h.rope_theta > 10000 || h.n_ctx_train <= row.n_ctx || is_scaled ||
        has_window)
      continue;
    lint.warn("rope_base", fmt::format("a context of {} with RoPE's base {:g} and no scaling: "
                                       "known models of this length have a larger "
                                       "base or a scaling",
                                       h.n_ctx_train, h.rope_theta));
  }
  for (const model::UsualForVocabulary& row : model::usual_for_vocabularies()) {
    if (row.architecture != architecture || row.n_vocab != n_vocab) continue;
    if (row.rope_base > 0 && h.rope_theta != row.rope_base) {
      lint.warn("rope_base", fmt::format("the base of RoPE is {:g}; models with {} of {} have {:g}", h.rope_theta,
                                         row.vocabulary, n_vocab, row.rope_base));
    }
    if (row.n_ctx_unscaled > 0 && h.n_ctx_train > row.n_ctx_unscaled && !is_scaled) {
      lint.warn("rope_scaling",
                fmt::format("a context of {} with {}, and no rope_freqs.weight: later models scale their frequencies; "
                            "without, long texts fall apart",
                            h.n_ctx_train, row.vocabulary));
    }
  }
}

void check_head_tensor(const LintInput& in, const std::string& architecture, Lint& lint) {
  using Head = model::UsualForVocabulary::Head;
  const gguf::Tensor* table = in.file.find("token_embd.weight");
  const gguf::Tensor* head = in.file.find("output.weight");
  if (table == nullptr) return;
  for (const model::UsualForVocabulary& row : model::usual_for_vocabularies()) {
    if (row.architecture != architecture || (row.n_vocab != 0 && row.n_vocab != table->view.shape.rows())) continue;
    if (head == nullptr && row.head == Head::own) {
      lint.warn(
          "tied_head",
          fmt::format(
              "output.weight is missing, so the embedding table is the head; no known model with {} of {} ties them: "
              "the tensor may have been lost",
              row.vocabulary, row.n_vocab));
    }
    if (head != nullptr && row.head == Head::tied) {
      lint.warn("tied_head",
                fmt::format("output.weight is there; the head of {} models is their embedding table", architecture));
    }
  }
  if (head != nullptr && head->view.dtype == table->view.dtype && head->view.shape == table->view.shape &&
      std::equal(head->view.data.begin(), head->view.data.end(), table->view.data.begin())) {
    lint.warn("tied_head",
              "output.weight repeats token_embd.weight byte by byte: a head that was tied by "
              "mistake, or bytes for nothing");
  }
}

}  // namespace

std::vector<LintFinding> lint_metadata(const LintInput& in) {
  Lint lint;
  const std::string architecture = architecture_of(in.file);
  if (in.is_read) check_unread(in.file, architecture, lint);
  check_vocabulary_rows(in, architecture, lint);
  check_head_tensor(in, architecture, lint);
  if (in.hparams == nullptr) return lint.take();
  const model::Hparams& h = *in.hparams;
  const gguf::Tensor* table = in.file.find("token_embd.weight");
  check_usual_values(in, architecture, lint);
  check_heads(in, h, architecture, lint);
  check_rope(in, h, architecture, table == nullptr ? 0 : table->view.shape.rows(), lint);
  return lint.take();
}

std::vector<LintFinding> lint(const LintInput& in) {
  std::vector<LintFinding> all = lint_metadata(in);
  for (auto rules : {&lint_tokenizer, &lint_template}) {
    for (LintFinding& finding : rules(in)) all.push_back(std::move(finding));
  }
  return all;
}

}  // namespace assay::measure
