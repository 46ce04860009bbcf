// The rules about hyper-parameters and tensors; lint_text.cpp has those about vocabulary and
// template.
#include "measure/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

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
  constexpr std::string_view kHarmless[] = {"vocab_size", "rope.dimension_sections",
                                            "attention.layer_norm_epsilon"};
  if (file.tensors().empty()) return;
  for (const gguf::Entry& entry : file.metadata().entries()) {
    if (architecture.empty() || !entry.key.starts_with(architecture + ".") ||
        entry.read.load(std::memory_order_relaxed))
      continue;
    const std::string_view name = entry.key.substr(architecture.size() + 1);
    if (std::find(std::begin(kHarmless), std::end(kHarmless), name) != std::end(kHarmless))
      continue;
    lint.warn("unread_key",
              fmt::format("{}: nothing here reads this key of the architecture", entry.key));
  }
}

void check_vocabulary_rows(const LintInput& in, const std::string& architecture, Lint& lint) {
  const gguf::Tensor* table = in.file.find("token_embd.weight");
  const std::string key = architecture + ".vocab_size";
  if (table == nullptr || !in.file.metadata().has(key)) return;
  const auto stated = static_cast<int64_t>(in.file.metadata().find_unsigned(key).value_or(0));
  if (stated != table->view.shape.rows()) {
    lint.fail("vocab_size", fmt::format("{} is {}, token_embd.weight has {} rows", key, stated,
                                        table->view.shape.rows()));
  }
}

void check_heads(const model::Hparams& h, Lint& lint) {
  if (h.head_dim % 8 != 0 || h.head_dim > 256) {
    lint.warn("heads", fmt::format("heads of {} elements ({} of them, model width {}): known "
                                   "models have 32 to 256, a multiple of 8",
                                   h.head_dim, h.n_heads, h.d_model));
  }
  const int64_t width = h.n_heads * h.head_dim;
  if (width > 4 * h.d_model || 4 * width < h.d_model) {
    lint.warn("heads", fmt::format("{} heads of {} elements make {}, the model's width is {}",
                                   h.n_heads, h.head_dim, width, h.d_model));
  }
  if (h.d_ff < h.d_model || h.d_ff > 16 * h.d_model) {
    lint.warn("d_ff",
              fmt::format("the feed-forward width {} is {:.2f} times the model's width {}: known "
                          "models have 2 to 8",
                          h.d_ff, static_cast<double>(h.d_ff) / static_cast<double>(h.d_model),
                          h.d_model));
  }
}

void check_rope(const LintInput& in, const model::Hparams& h, const std::string& architecture,
                int64_t n_vocab, Lint& lint) {
  constexpr std::array kLlamaBases = {1e4, 1e5, 1.3e5, 2.5e5, 5e5, 1e6, 2e6,
                                      4e6, 5e6, 8e6,   1e7,   1e8, 1e9};
  constexpr std::array kGemmaBases = {1e4, 1e6};
  const auto is_usual = [&](const auto& bases) {
    return std::any_of(bases.begin(), bases.end(),
                       [&](double base) { return std::abs(h.rope_theta - base) <= 1e-5 * base; });
  };
  if (architecture == "gemma3" ? !is_usual(kGemmaBases) : !is_usual(kLlamaBases)) {
    lint.warn("rope_base", fmt::format("the base of RoPE is {:g}, which no known {} model has",
                                       h.rope_theta, architecture));
  }
  if (h.rope_dim != h.head_dim) {
    lint.warn("rope_dim",
              fmt::format("{} of a head's {} elements are rotated: {} models rotate all",
                          h.rope_dim, h.head_dim, architecture));
  }
  const gguf::Metadata& metadata = in.file.metadata();
  const bool is_scaled = metadata.has(architecture + ".rope.scaling.type") ||
                         metadata.has(architecture + ".rope.scaling.factor") ||
                         in.file.find("rope_freqs.weight") != nullptr;
  const bool has_window = metadata.has(architecture + ".attention.sliding_window");
  if (architecture == "llama" && h.rope_theta <= 10000 && h.n_ctx_train > 4096 && !is_scaled &&
      !has_window) {
    lint.warn("rope_base", fmt::format("a context of {} with RoPE's base {:g} and no scaling: "
                                       "known models of this length have a larger "
                                       "base or a scaling",
                                       h.n_ctx_train, h.rope_theta));
  }
  const bool is_llama3 = architecture == "llama" && n_vocab == 128256;
  if (is_llama3 && h.rope_theta != 500000) {
    lint.warn(
        "rope_base",
        fmt::format("the base of RoPE is {:g}; models with Llama 3's vocabulary of {} have 500000",
                    h.rope_theta, n_vocab));
  }
  if (is_llama3 && h.n_ctx_train > 8192 && !is_scaled) {
    lint.warn("rope_scaling", fmt::format("a context of {} with Llama 3's vocabulary, and no "
                                          "rope_freqs.weight: Llama 3.1 and later scale "
                                          "their frequencies; without, long texts fall apart",
                                          h.n_ctx_train));
  }
}

void check_head_tensor(const LintInput& in, const std::string& architecture, Lint& lint) {
  const gguf::Tensor* table = in.file.find("token_embd.weight");
  const gguf::Tensor* head = in.file.find("output.weight");
  if (table == nullptr) return;
  if (head == nullptr && architecture == "llama" && table->view.shape.rows() == 32000) {
    lint.warn("tied_head",
              "output.weight is missing, so the embedding table is the head; no known model with "
              "Llama 2's vocabulary of 32000 "
              "ties them: the tensor may have been lost");
  }
  if (head != nullptr && architecture == "gemma3") {
    lint.warn("tied_head", "output.weight is there; Gemma 3's head is its embedding table");
  }
  if (head != nullptr && head->view.dtype == table->view.dtype &&
      head->view.shape == table->view.shape &&
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
  check_heads(h, lint);
  check_rope(in, h, architecture, table == nullptr ? 0 : table->view.shape.rows(), lint);
  if (h.norm_eps > 0 && h.norm_eps != 1e-5f && h.norm_eps != 1e-6f) {
    lint.warn("norm_eps",
              fmt::format("the epsilon of the norms is {:g}; known {} models have 1e-5 or 1e-6",
                          h.norm_eps, architecture));
  }
  if (architecture == "gemma3" && h.norm_eps != 1e-6f) {
    lint.warn("norm_eps",
              fmt::format("the epsilon of the norms is {:g}; Gemma 3 has 1e-6", h.norm_eps));
  }
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
