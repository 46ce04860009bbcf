// See plan.h.
#include "quantize/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "assay/error.h"
#include "base/shown.h"
#include "quant/format.h"
#include "quantize/name_rules.h"

namespace assay::quantizing {
namespace {

using tensor::DType;

int64_t first_count(const gguf::Metadata& metadata, const std::string& key, int64_t otherwise) {
  const gguf::Entry* entry = metadata.find(key);
  if (entry == nullptr) return otherwise;
  if (entry->type == gguf::ValueType::array) {
    const auto values = metadata.find_integers(key);
    return values && !values->empty() ? values->front() : otherwise;
  }
  return metadata.find_integer(key).value_or(otherwise);
}

ModelFacts facts_of(const gguf::Metadata& metadata) {
  ModelFacts facts;
  facts.architecture = std::string(metadata.require_string("general.architecture"));
  const std::string prefix = facts.architecture + ".";
  facts.n_layers = static_cast<int64_t>(metadata.require_unsigned(prefix + "block_count"));
  facts.n_heads = first_count(metadata, prefix + "attention.head_count", 0);
  facts.n_kv_heads = first_count(metadata, prefix + "attention.head_count_kv", facts.n_heads);
  facts.n_experts = first_count(metadata, prefix + "expert_count", 0);
  return facts;
}

// Block numbers of the source to those of the new file; those left out are missing.
std::map<int64_t, int64_t> renumbered(const gguf::File& file, const std::vector<int64_t>& pruned, int64_t n_layers) {
  for (const int64_t layer : pruned) {
    if (layer < 0 || layer >= n_layers)
      throw Error(Errc::bad_request,
                  fmt::format("block {} cannot be left out: the model has blocks 0 to {}", layer, n_layers - 1));
  }
  std::map<int64_t, int64_t> numbers;
  for (const gguf::Tensor& t : file.tensors()) {
    if (const auto block = block_of(t.name); block && std::find(pruned.begin(), pruned.end(), *block) == pruned.end())
      numbers[*block] = 0;
  }
  int64_t next = 0;
  for (auto& [from, to] : numbers) to = next++;
  return numbers;
}

std::string renamed(std::string_view name, int64_t from, int64_t to) {
  const std::string old_part = fmt::format("blk.{}.", from);
  std::string text(name);
  text.replace(text.find(old_part), old_part.size(), fmt::format("blk.{}.", to));
  return text;
}

std::vector<PlannedTensor> in_order(const gguf::File& file, const QuantizeOptions& options, int64_t n_layers) {
  std::vector<PlannedTensor> tensors;
  const auto numbers =
      options.prune_layers.empty() ? std::map<int64_t, int64_t>{} : renumbered(file, options.prune_layers, n_layers);
  for (const gguf::Tensor& t : file.tensors()) {
    const std::optional<int64_t> block = options.prune_layers.empty() ? std::nullopt : block_of(t.name);
    if (!block) {
      tensors.push_back({&t, std::string(t.name), {}});
    } else if (const auto found = numbers.find(*block); found != numbers.end()) {
      tensors.push_back({&t, renamed(t.name, *block, found->second), {}});
    }
  }
  if (options.keep_split) {  // each file keeps its tensors, and they their order
    std::stable_sort(tensors.begin(), tensors.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
      return a.source->shard != b.source->shard ? a.source->shard < b.source->shard
                                                : a.source->file_offset < b.source->file_offset;
    });
  } else {
    std::sort(tensors.begin(), tensors.end(),
              [](const PlannedTensor& a, const PlannedTensor& b) { return goes_before(a.name, b.name); });
  }
  return tensors;
}

// What a quantised source is: its file type, else its most frequent format.
std::string source_type(const gguf::File& file) {
  std::map<std::string_view, uint64_t> bytes;
  for (const gguf::Tensor& t : file.tensors()) {
    if (is_quantized(t.view.dtype)) bytes[tensor::traits(t.view.dtype).name] += t.view.data.size();
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto number = file.metadata().find_unsigned("general.file_type");
  const auto named = number ? file_type_name(*number) : std::nullopt;
  return std::string(named ? *named : most->first);
}

void check_source(const gguf::File& file, const QuantizeOptions& options, Plan& plan) {
  for (const PlannedTensor& t : plan.tensors) {
    const tensor::TensorView& view = t.source->view;
    if (t.choice.dtype == view.dtype) continue;
    if (!is_quantized(view.dtype)) continue;
    plan.requantized = source_type(file);
    if (options.allow_requantize) return;
    throw Error(
        Errc::bad_request,
        fmt::format(
            "{} is {} already (the file is {}); quantising it again adds the errors of both: needs --allow-requantize, "
            "or better the file of float weights",
            base::shown(t.source->name), tensor::traits(view.dtype).name, *plan.requantized));
  }
}

void check_types(const Plan& plan) {
  for (const PlannedTensor& t : plan.tensors) {
    if (t.choice.dtype != t.source->view.dtype && quant::find_format(t.source->view.dtype) == nullptr) {
      throw Error(Errc::unsupported, fmt::format("{} has type {}, which is no type of weights; it cannot become {}",
                                                 base::shown(t.source->name), tensor::traits(t.source->view.dtype).name,
                                                 tensor::traits(t.choice.dtype).name));
    }
  }
}

}  // namespace

Plan make_plan(const gguf::File& file, const QuantizeOptions& options, bool has_matrix) {
  Plan plan;
  plan.mix = &require_mix(options.type);
  const NameRules rules(options.tensor_types);
  RecipeOptions recipe;
  recipe.mix = plan.mix;
  recipe.has_matrix = has_matrix;
  recipe.pure = options.pure;
  recipe.leave_output_tensor = options.leave_output_tensor;
  if (options.output_tensor_type) recipe.output_tensor_type = require_writable_type(*options.output_tensor_type);
  if (options.token_embedding_type) recipe.token_embedding_type = require_writable_type(*options.token_embedding_type);
  if (!rules.empty()) recipe.chosen = [&](std::string_view name) { return rules.type_of(name); };

  plan.facts = facts_of(file.metadata());
  plan.tensors = in_order(file, options, plan.facts.n_layers);
  plan.n_layers = plan.facts.n_layers - static_cast<int64_t>(options.prune_layers.size());
  std::vector<RecipeTensor> tensors;
  for (const PlannedTensor& t : plan.tensors) tensors.push_back({t.name, t.source->view.dtype, t.source->view.shape});
  const std::vector<Choice> choices = choose_types(tensors, plan.facts, recipe);
  for (size_t i = 0; i < choices.size(); ++i) plan.tensors[i].choice = choices[i];
  check_types(plan);
  check_source(file, options, plan);
  return plan;
}

QuantizePlan public_plan(const Plan& plan, const Weighing& weighing) {
  QuantizePlan all;
  all.type = plan.mix->name;
  all.requantized = plan.requantized;
  all.has_matrix = weighing.given();
  for (const PlannedTensor& planned : plan.tensors) {
    const tensor::TensorView& view = planned.source->view;
    const tensor::DTypeTraits& to = tensor::traits(planned.choice.dtype);
    QuantizedTensor t;
    t.name = planned.name;
    t.source_name = planned.source->name;
    t.shape.assign(view.shape.dims.begin(), view.shape.dims.begin() + view.shape.rank);
    t.source_type = tensor::traits(view.dtype).name;
    t.type = to.name;
    if (planned.choice.wanted) t.wanted = tensor::traits(*planned.choice.wanted).name;
    const bool has_entry = weighing.has(planned.source->name), is_encoded = planned.choice.dtype != view.dtype;
    t.needs_matrix = planned.choice.needs_matrix && is_encoded && !has_entry;
    t.is_weighted = has_entry && is_encoded && is_quantized(planned.choice.dtype);
    if (t.is_weighted) t.experts_without_data = weighing.experts_without_data(planned.source->name);
    t.n_elements = static_cast<uint64_t>(view.shape.elements());
    t.source_bytes = view.data.size();
    t.bytes = t.n_elements / static_cast<uint64_t>(to.block_elements) * static_cast<uint64_t>(to.block_bytes);
    all.n_elements += t.n_elements;
    all.source_bytes += t.source_bytes;
    all.bytes += t.bytes;
    all.tensors.push_back(std::move(t));
  }
  return all;
}

}  // namespace assay::quantizing
