// The public functions that read no weights.
#include "assay/quantize.h"

#include <algorithm>

#include "gguf/file.h"
#include "quantize/plan.h"

namespace assay {

int QuantizePlan::n_fallbacks() const noexcept {
  return static_cast<int>(
      std::count_if(tensors.begin(), tensors.end(), [](const QuantizedTensor& t) { return !t.wanted.empty(); }));
}

double QuantizePlan::bits_per_weight() const noexcept {
  return n_elements == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(n_elements);
}

std::vector<std::string> quantize_type_names() {
  std::vector<std::string> names;
  for (const quantizing::Mix& mix : quantizing::all_mixes()) names.emplace_back(mix.name);
  return names;
}

QuantizePlan plan_quantize(const std::filesystem::path& in, const QuantizeOptions& options) {
  quantizing::require_mix(options.type);  // before a large file is opened
  const gguf::File file = gguf::File::open(in);
  const quantizing::Weighing weighing(file, options);
  return quantizing::public_plan(quantizing::make_plan(file, options, weighing.given()), weighing);
}

}  // namespace assay
