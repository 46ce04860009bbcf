#include "convert/rows.h"

#include <cstring>

#include "num/f16.h"

namespace assay::converting {
namespace {

// Where row i of the output stands before the rows of each head were made to take turns: j of the first half and j of the second become 2j and 2j + 1.
int64_t before_turns(const Output& output, int64_t i) noexcept {
  if (output.rope_heads == 0) return i;
  const int64_t width = output.rows / output.rope_heads, head = i / width, within = i % width;
  return head * width + (within % 2) * (width / 2) + within / 2;
}

}  // namespace

Place place_of(const Output& output, int64_t row) {
  int64_t at = before_turns(output, row);
  for (const Slice& slice : output.slices) {
    if (at < slice.n_rows) return {slice.tensor, slice.first_row + at};
    at -= slice.n_rows;
  }
  return {};
}

void read_row(const Output& output, int64_t row, float* x) {
  if (output.slices.empty()) {
    std::memcpy(x, output.values.data() + row * output.cols, static_cast<size_t>(output.cols) * sizeof(float));
    return;
  }
  const Place place = place_of(output, row);
  const tensor::DType dtype = *place.tensor->dtype;
  const int64_t size = dtype == tensor::DType::F32 ? 4 : 2;
  const std::byte* from = place.tensor->data.data() + place.row * output.cols * size;
  const auto each_half = [&](auto widen) {
    for (int64_t j = 0; j < output.cols; ++j) {
      uint16_t half;
      std::memcpy(&half, from + 2 * j, 2);
      x[j] = widen(half);
    }
  };
  if (dtype == tensor::DType::F32) {
    std::memcpy(x, from, static_cast<size_t>(output.cols) * sizeof(float));
  } else if (dtype == tensor::DType::BF16) {
    each_half([](uint16_t half) { return num::bf16_to_float(half); });
  } else {
    each_half([](uint16_t half) { return num::half_to_float(half); });
  }
  if (!output.plus_one) return;
  for (int64_t j = 0; j < output.cols; ++j) {
    x[j] += 1.0f;
    if (dtype == tensor::DType::F16) x[j] = num::half_to_float(num::float_to_half(x[j]));
  }
}

}  // namespace assay::converting
