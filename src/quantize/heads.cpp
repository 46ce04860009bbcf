// What stands in the new files before their tensors.
#include <utility>

#include "gguf/override.h"
#include "quantize/job.h"

namespace assay::quantizing {
namespace {

constexpr uint32_t kQuantizationVersion = 2;

}  // namespace

void apply_override(gguf::Head& head, const std::string& text) {
  for (gguf::Override& one : gguf::parse_overrides(text)) head.set(one.key, std::move(one.value));
}

std::vector<gguf::Head> heads_of(const gguf::File& file, const Plan& plan, const Weighing& weighing,
                                 const QuantizeOptions& options) {
  gguf::Head first(file);
  first.clear_tensors();
  if (plan.mix->id != MixId::copy) {
    first.set("general.quantization_version", gguf::Value::of(kQuantizationVersion));
    first.set("general.file_type", gguf::Value::of(plan.mix->file_type));
  }
  if (weighing.given()) {
    const Imatrix& matrix = weighing.matrix();
    first.set("quantize.imatrix.file", gguf::Value::of(weighing.path()));
    if (!matrix.datasets.empty()) first.set("quantize.imatrix.dataset", gguf::Value::of(matrix.datasets.front()));
    first.set("quantize.imatrix.entries_count", gguf::Value::of(static_cast<uint32_t>(matrix.entries.size())));
    if (matrix.n_chunks > 0)
      first.set("quantize.imatrix.chunks_count", gguf::Value::of(static_cast<uint32_t>(matrix.n_chunks)));
  }
  if (!options.prune_layers.empty()) {
    first.set(plan.facts.architecture + ".block_count", gguf::Value::of(static_cast<uint32_t>(plan.n_layers)));
  }
  for (const std::string& text : options.override_kv) apply_override(first, text);

  const bool is_split = options.keep_split && file.n_shards() > 1;
  std::vector<gguf::Head> heads(is_split ? static_cast<size_t>(file.n_shards()) : 1);
  heads[0] = std::move(first);
  for (const PlannedTensor& t : plan.tensors) {
    heads[is_split ? static_cast<size_t>(t.source->shard) : 0].declare(t.name, t.choice.dtype, t.source->view.shape);
  }
  if (!is_split) return heads;
  for (size_t i = 0; i < heads.size(); ++i) {
    heads[i].set("split.no", gguf::Value::of(static_cast<uint16_t>(i)));
    heads[i].set("split.count", gguf::Value::of(static_cast<uint16_t>(heads.size())));
    heads[i].set("split.tensors.count", gguf::Value::of(static_cast<int32_t>(plan.tensors.size())));
  }
  return heads;
}

}  // namespace assay::quantizing
