// The plain encoders, which the others have the bytes of. See encoder_sets.h.
#include "quant/encode/encoder_sets.h"
#include "quant/encode/encoder_table.h"
#include "quant/encode/float_rows.h"
#include "quant/encode/lanes_plain.h"

namespace assay::quant::encode {
namespace {

using tensor::DType;

template <size_t n>
constexpr auto with_others(const std::array<Encoder, n>& over_lanes) noexcept {
  std::array<Encoder, n + 5> all{};
  for (size_t i = 0; i < n; ++i) all[i] = over_lanes[i];
  all[n] = {DType::F32, &encode_f32_row};
  all[n + 1] = {DType::F16, &encode_f16_row};
  all[n + 2] = {DType::BF16, &encode_bf16_row};
  all[n + 3] = {DType::TQ1_0, &encode_row<TernaryTQ1_0, 256>};
  all[n + 4] = {DType::TQ2_0, &encode_row<TernaryTQ2_0, 256>};
  return all;
}
constexpr auto kEncoders = with_others(make_encoders<PlainLanes>());

}  // namespace

std::span<const Encoder> plain_encoders() noexcept { return kEncoders; }

}  // namespace assay::quant::encode
