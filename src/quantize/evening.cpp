// How much a matrix is evened, format by format; evening.h says why.
#include "quantize/evening.h"

#include <algorithm>
#include <iterator>

namespace assay::quantizing {
namespace {

using tensor::DType;

// The least with which the mean of the tensors' plain errors stays below llama-quantize's on both models of
// docs/quantize.md. Formats that are not here stay below it with none.
struct Share {
  DType dtype;
  float share;
};
constexpr Share kShares[] = {
    {DType::Q4_0, 0.22f},  {DType::Q5_0, 0.18f},   {DType::IQ4_NL, 0.14f},  {DType::IQ4_XS, 0.14f},
    {DType::Q3_K, 0.26f},  {DType::Q4_K, 0.01f},   {DType::IQ3_S, 0.02f},   {DType::IQ3_XXS, 0.15f},
    {DType::IQ2_S, 0.04f}, {DType::IQ2_XS, 0.05f}, {DType::IQ2_XXS, 0.05f},
};

}  // namespace

float evening_share(tensor::DType dtype) noexcept {
  const auto* const found = std::ranges::find(kShares, dtype, &Share::dtype);
  return found == std::end(kShares) ? 0.0f : found->share;
}

std::vector<float> evened(std::span<const float> importance, int64_t n_columns, tensor::DType dtype) {
  std::vector<float> even(importance.begin(), importance.end());
  const float share = evening_share(dtype);
  if (share == 0.0f) return even;
  for (auto row = even.begin(); row != even.end(); row += n_columns) {
    double sum = 0;
    for (auto value = row; value != row + n_columns; ++value) sum += *value;
    const auto more = static_cast<float>(share * sum / static_cast<double>(n_columns));
    for (auto value = row; value != row + n_columns; ++value) *value += more;
  }
  return even;
}

}  // namespace assay::quantizing
