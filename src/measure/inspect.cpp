// Gathers what assay/inspect.h tells; inspect_report.cpp prints it.
#include "assay/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "assay/devices.h"
#include "base/aligned_buffer.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "engine/metadata_json.h"
#include "engine/model_state.h"
#include "gguf/reader.h"
#include "measure/lint.h"
#include "model/build.h"
#include "text/from_gguf.h"

namespace assay {
namespace {

// Runs a step whose Error becomes a problem of that part.
template <class Step>
void attempt(Inspection& out, const char* part, Step step) {
  try {
    step();
  } catch (const Error& error) {
    out.problems.push_back({part, error.code, error.what()});
  }
}

// A file whose model cannot be loaded: every part on its own, for its problems and for the marks on the keys it reads.
void try_parts(Inspection& out, const gguf::File& file) {
  const gguf::Metadata& metadata = file.metadata();
  if (out.vocabulary_only) {
    Inspection expected;  // that a vocabulary has no weights is no problem of it
    attempt(expected, "model", [&] { model::build_model(file); });
  } else {
    attempt(out, "model", [&] { model::build_model(file); });
  }
  attempt(out, "tokenizer", [&] { text::make_tokenizer(metadata); });
  attempt(out, "chat template", [&] {
    const auto source = metadata.find_string("tokenizer.chat_template");
    if (source) ChatTemplate::parse(*source);
  });
}

std::vector<Device> gpus() {
  std::vector<Device> found = list_devices().devices;
  std::erase_if(found, [](const Device& device) { return device.backend != "cuda"; });
  return found;
}

// The GPUs that the context took memory of.
std::vector<DeviceMemory> device_memory(const std::vector<Device>& before) {
  std::vector<DeviceMemory> taken;
  const std::vector<Device> after = gpus();
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    const int64_t used = before[i].memory_free_bytes - after[i].memory_free_bytes;
    if (used > 0) taken.push_back({static_cast<int>(i), before[i].name, used, before[i].memory_free_bytes});
  }
  return taken;
}

void plan_memory(Inspection& out, const std::shared_ptr<const Model>& model, const ContextOptions& options) {
  attempt(out, "memory", [&] {
    const std::vector<Device> before = options.backend == Backend::cpu ? std::vector<Device>{} : gpus();
    ContextOptions of_model = options;
    of_model.embeddings = options.embeddings || !model->has_logits();
    const Context context(model, of_model);
    const bool on_gpu = context.options().backend == Backend::cuda;
    out.memory.push_back({context.options(), context.memory(), static_cast<int64_t>(base::memory_available_bytes()),
                          on_gpu ? device_memory(before) : std::vector<DeviceMemory>{},
                          beyond_training(*model, context.n_ctx())});
  });
}

void describe_metadata(Inspection& out, const gguf::Metadata& metadata, int64_t items_max) {
  for (const gguf::Entry& entry : metadata.entries()) {
    const bool is_array = entry.type == gguf::ValueType::array;
    engine::JsonValue value = engine::metadata_json(entry, items_max);
    MetadataFact fact;
    fact.key = base::repaired_utf8(entry.key);
    fact.type =
        is_array ? fmt::format("array of {}", gguf::name(entry.element_type)) : std::string(gguf::name(entry.type));
    fact.count = is_array ? static_cast<int64_t>(entry.count) : 1;
    fact.json = std::move(value.text);
    fact.shortened = value.shortened;
    fact.read = entry.read.load(std::memory_order_relaxed);
    out.metadata.push_back(std::move(fact));
  }
}

void describe_tensors(Inspection& out, std::span<const gguf::Tensor> tensors) {
  for (const gguf::Tensor& tensor : tensors) {
    const tensor::Shape& shape = tensor.view.shape;
    const tensor::DTypeTraits& traits = tensor::traits(tensor.view.dtype);
    TensorFact fact;
    fact.name = base::repaired_utf8(tensor.name);
    fact.type = traits.name;
    fact.shape.assign(shape.dims.begin(), shape.dims.begin() + shape.rank);
    fact.shard = tensor.shard;
    fact.offset = static_cast<int64_t>(tensor.file_offset);
    fact.bytes = shape.elements() / traits.block_elements * traits.block_bytes;
    out.n_parameters += shape.elements();
    out.tensors.push_back(std::move(fact));
  }
}

void describe_file(Inspection& out, const gguf::File& file, int64_t items_max) {
  out.version = static_cast<int>(file.version());
  out.alignment = static_cast<int64_t>(file.alignment());
  out.file_bytes = static_cast<int64_t>(file.file_bytes());
  out.n_shards = file.n_shards();
  describe_metadata(out, file.metadata(), items_max);
  describe_tensors(out, file.tensors());
}

// A key of the file as text, whatever the file says of it; not counted as a use.
std::string text_of(const gguf::Metadata& metadata, std::string_view key) {
  for (const gguf::Entry& entry : metadata.entries()) {
    if (entry.key == key && entry.type == gguf::ValueType::string) {
      return base::repaired_utf8({reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()});
    }
  }
  return {};
}

// What cannot be served is wrong with the file, whatever else is.
void add_problems(Inspection& out) {
  for (const InspectProblem& problem : out.problems) {
    if (problem.part != "memory")
      out.lint.push_back({"unusable", LintLevel::error, fmt::format("{}: {}", problem.part, problem.message)});
  }
}

// Of a file whose parts may or may not be served: each that can be takes part.
void lint_parts(Inspection& out, const gguf::File& file) {
  Inspection ignored;  // try_parts has told what cannot be served
  std::optional<model::Hparams> hparams;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  attempt(ignored, "model", [&] { hparams = model::read_hparams({file.metadata(), out.architecture}); });
  attempt(ignored, "tokenizer", [&] { tokenizer = text::make_tokenizer(file.metadata()); });
  attempt(ignored, "chat template", [&] {
    if (const auto source = file.metadata().find_string("tokenizer.chat_template"))
      chat_template = ChatTemplate::parse(*source);
  });
  const bool is_read =
      std::none_of(out.problems.begin(), out.problems.end(), [](const InspectProblem& p) { return p.part == "model"; });
  add_problems(out);
  for (LintFinding& finding :
       measure::lint({file, hparams ? &*hparams : nullptr, tokenizer.get(), chat_template.get(), is_read}))
    out.lint.push_back(std::move(finding));
  out.linted = true;
}

}  // namespace

std::string beyond_training(const Model& model, int64_t n_ctx) {
  if (n_ctx <= model.n_ctx_train()) return {};
  std::string text = fmt::format("a context of {} positions is beyond the {} that the model was trained with", n_ctx,
                                 model.n_ctx_train());
  const gguf::Metadata& metadata = model.state().file.metadata();
  const std::string prefix = std::string(model.architecture()) + ".rope.scaling.";
  if (metadata.find_string(prefix + "type") != "yarn") return text + ": what stands past them may be nonsense";
  const double factor = metadata.find_float(prefix + "factor").value_or(1);
  const auto original = static_cast<int64_t>(
      metadata.find_unsigned(prefix + "original_context_length").value_or(static_cast<uint64_t>(model.n_ctx_train())));
  return text +
         fmt::format("; the file's YaRN keys ({}type, {}factor {}, {}original_context_length {}) stretch it to {}",
                     prefix, prefix, factor, prefix, original,
                     static_cast<int64_t>(factor * static_cast<double>(original)));
}

int64_t Inspection::n_unread() const noexcept {
  return std::count_if(metadata.begin(), metadata.end(), [](const MetadataFact& fact) { return !fact.read; });
}

namespace {

// A file that cannot be opened, of which what stands before the tensors' data is whole: what it says, and what is
// wrong.
std::optional<Inspection> inspect_head(const std::string& path, const Error& problem, const InspectOptions& options) {
  Inspection out;
  try {
    const base::MappedFile map(path);
    const gguf::Contents contents = gguf::read_directory(map.bytes(), path);
    out.path = path;
    out.name = text_of(contents.metadata, "general.name");
    out.architecture = text_of(contents.metadata, "general.architecture");
    out.version = static_cast<int>(contents.version);
    out.alignment = static_cast<int64_t>(contents.alignment);
    out.file_bytes = static_cast<int64_t>(map.bytes().size());
    describe_metadata(out, contents.metadata, options.array_items_max);
    describe_tensors(out, contents.tensors);
    for (MetadataFact& fact : out.metadata) fact.read = true;  // nobody has come to read them
    out.n_shards = 1;
  } catch (const Error&) {
    return std::nullopt;
  }
  std::string_view what = problem.what();
  if (what.starts_with(path + ": ")) what.remove_prefix(path.size() + 2);
  out.problems.push_back({"file", problem.code, std::string(what)});
  if (options.lint) add_problems(out);
  out.linted = options.lint;
  return out;
}

}  // namespace

Inspection inspect(const std::string& path, const InspectOptions& options) try {
  const gguf::File file = gguf::File::open(path);
  Inspection out;
  out.path = path;
  out.vocabulary_only = file.tensors().empty();
  out.name = text_of(file.metadata(), "general.name");
  out.architecture = text_of(file.metadata(), "general.architecture");

  std::shared_ptr<const Model> model;
  if (!out.vocabulary_only) {
    try {
      model = Model::load(path);
    } catch (const Error&) {
      model = nullptr;  // try_parts says what is wrong, part by part
    }
  }
  if (!model) {
    try_parts(out, file);
    describe_file(out, file, options.array_items_max);
    if (options.lint) lint_parts(out, file);
    return out;
  }
  out.weights_type = std::string(model->weights_type());
  attempt(out, "chat template", [&] { model->chat_template(); });
  plan_memory(out, model, options.context);
  describe_file(out, model->state().file, options.array_items_max);
  if (options.lint) lint_parts(out, model->state().file);
  return out;
} catch (const Error& problem) {
  if (problem.code != Errc::bad_file) throw;
  std::optional<Inspection> head = inspect_head(path, problem, options);
  if (!head) throw;
  return std::move(*head);
}

}  // namespace assay
