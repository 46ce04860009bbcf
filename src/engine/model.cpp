// See assay/model.h.
#include "assay/model.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <utility>

#include "assay/error.h"
#include "assay/override.h"
#include "base/shown.h"
#include "engine/metadata_json.h"
#include "engine/model_state.h"
#include "gguf/override.h"
#include "text/from_gguf.h"

namespace assay {
namespace {

// The type that most elements of the plan's matrices have.
std::string most_common_type(const ops::Plan& plan) {
  std::map<std::string_view, int64_t> elements;
  for (const ops::Weight& weight : plan.weights) {
    elements[tensor::traits(weight.view.dtype).name] += weight.view.shape.elements();
  }
  std::string_view most;
  for (const auto& [type, n] : elements) {
    if (most.empty() || n > elements[most]) most = type;
  }
  return std::string(most);
}

void check_vocabulary(const Model::State& state) {
  const int64_t n_tokens = state.tokenizer->vocab_size();
  if (n_tokens != state.built.plan.vocab_size) {
    throw Error(
        Errc::bad_file,
        fmt::format("token_embd.weight: needs a row for each of the {} tokens of tokenizer.ggml.tokens, found {}",
                    n_tokens, state.built.plan.vocab_size));
  }
}

void parse_chat_template(Model::State& state) {
  state.chat_template_source = std::string(state.file.metadata().find_string("tokenizer.chat_template").value_or(""));
  if (state.chat_template_source.empty()) return;
  try {
    state.chat_template = ChatTemplate::parse(state.chat_template_source);
  } catch (const Error&) {
    state.chat_template_error = std::current_exception();  // told to who asks for the template
  }
}

// What stands in the place of a file's metadata.
struct Overrides {
  std::vector<gguf::Override> all;
  gguf::OverrideStorage storage;
  std::vector<std::string> changes;
};

std::string shown_entry(const gguf::Entry& entry) {
  constexpr int64_t kItemsMax = 4;
  constexpr size_t kBytesMax = 100;
  const std::string text = engine::metadata_json(entry, kItemsMax).text;
  return text.size() <= kBytesMax ? text : fmt::format("a value of {} bytes", entry.bytes.size());
}

Overrides parse_overrides(const std::vector<std::string>& texts) {
  Overrides overrides;
  for (const std::string& text : texts) {
    for (gguf::Override& one : gguf::parse_overrides(text)) {
      if (one.key == gguf::kAlignmentKey || one.key.starts_with("split.")) {
        throw Error(Errc::bad_request,
                    fmt::format("--override-kv {}: says how the file's bytes lie, which no other value changes",
                                base::shown(one.key)));
      }
      overrides.all.push_back(std::move(one));
    }
  }
  return overrides;
}

void apply_overrides(Overrides& overrides, gguf::File& file) {
  for (const gguf::Override& one : overrides.all) {
    const gguf::Entry* const there = gguf::entry_of(file, one.key);
    const std::string was = there != nullptr ? "the file says " + shown_entry(*there) : "the file has none";
    gguf::put(file, one, overrides.storage);
    overrides.changes.push_back(fmt::format("{} is {}, {}", one.key, shown_entry(*gguf::entry_of(file, one.key)), was));
  }
}

void say_which_nobody_read(Overrides& overrides, const gguf::File& file) {
  for (size_t i = 0; i < overrides.all.size(); ++i) {
    if (!gguf::entry_of(file, overrides.all[i].key)->read) overrides.changes[i] += "; nothing here reads it";
  }
}

// Milliseconds between its calls.
class Laps {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

std::unique_ptr<Model::State> load_state(const std::string& path, const LoadOptions& options, Overrides* overrides) {
  Laps laps;
  auto state = std::make_unique<Model::State>(path, gguf::File::open(path));
  if (overrides != nullptr) apply_overrides(*overrides, state->file);
  for (size_t i = 0; overrides != nullptr && i < overrides->changes.size(); ++i)
    state->overrides += overrides->changes[i] + "\n";
  LoadTiming& timing = state->load_timing;
  timing.open_ms = laps.lap();
  state->built = model::build_model(state->file);
  const gguf::Metadata& metadata = state->file.metadata();
  state->architecture = std::string(metadata.require_string("general.architecture"));
  state->name = std::string(metadata.find_string("general.name").value_or(""));
  if (state->name.empty()) state->name = std::filesystem::path(path).stem().string();
  for (const gguf::Tensor& tensor : state->file.tensors()) {
    state->n_parameters += tensor.view.shape.elements();
    state->tensors_bytes += static_cast<int64_t>(tensor.view.data.size());
  }
  for (const ops::Weight& weight : state->built.plan.weights)
    state->weights_bytes += static_cast<int64_t>(weight.view.data.size());
  state->weights_type = most_common_type(state->built.plan);
  timing.plan_ms = laps.lap();
  if (options.tokenizer) {
    state->tokenizer = text::make_tokenizer(metadata);
    check_vocabulary(*state);
  }
  timing.vocabulary_ms = laps.lap();
  parse_chat_template(*state);
  timing.template_ms = laps.lap();
  return state;
}

}  // namespace

std::shared_ptr<const Model> Model::load(const std::string& path, const LoadOptions& options) {
  return std::make_shared<const Model>(load_state(path, options, nullptr));
}

OverriddenModel load_overridden(const std::string& path, const std::vector<std::string>& override_kv,
                                const LoadOptions& options) {
  struct Owner {
    Overrides overrides;
    std::unique_ptr<const Model> model;
  };
  auto owner = std::make_shared<Owner>();
  owner->overrides = parse_overrides(override_kv);
  auto state = load_state(path, options, &owner->overrides);
  if (options.tokenizer) say_which_nobody_read(owner->overrides, state->file);
  owner->model = std::make_unique<const Model>(std::move(state));
  const Model* const model = owner->model.get();
  std::vector<std::string> changes = owner->overrides.changes;
  return {std::shared_ptr<const Model>(std::move(owner), model), std::move(changes)};
}

Model::Model(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Model::~Model() = default;

const std::shared_ptr<const Tokenizer>& Model::tokenizer() const noexcept { return state_->tokenizer; }

const std::shared_ptr<const ChatTemplate>& Model::chat_template() const {
  if (state_->chat_template_error) std::rethrow_exception(state_->chat_template_error);
  return state_->chat_template;
}

std::string_view Model::chat_template_source() const noexcept { return state_->chat_template_source; }
const std::string& Model::path() const noexcept { return state_->path; }
std::string_view Model::name() const noexcept { return state_->name; }
std::string_view Model::architecture() const noexcept { return state_->architecture; }
std::string_view Model::weights_type() const noexcept { return state_->weights_type; }
int64_t Model::vocab_size() const noexcept { return state_->built.plan.vocab_size; }
bool Model::has_logits() const noexcept { return state_->built.plan.logits != ops::kNone; }
int64_t Model::n_ctx_train() const noexcept { return state_->built.hparams.n_ctx_train; }
int64_t Model::d_model() const noexcept { return state_->built.hparams.d_model; }
int64_t Model::n_layers() const noexcept { return state_->built.hparams.n_layers; }
int64_t Model::n_parameters() const noexcept { return state_->n_parameters; }
int64_t Model::file_bytes() const noexcept { return static_cast<int64_t>(state_->file.file_bytes()); }
int64_t Model::tensors_bytes() const noexcept { return state_->tensors_bytes; }
int64_t Model::weights_bytes() const noexcept { return state_->weights_bytes; }
const LoadTiming& Model::load_timing() const noexcept { return state_->load_timing; }

}  // namespace assay
