// See rows.h.
#include "convert/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "num/f16.h"

namespace assay::converting {
namespace {

// Where row i of the output stands before the rows of each head were made to take turns: j of the first half and j of
// the second become 2j and 2j + 1.
int64_t before_turns(const Output& output, int64_t i) noexcept {
  if (output.rope_heads == 0) return i;
  const int64_t width = output.rows / output.rope_heads, head = i / width, within = i % width;
  return head * width + (within % 2) * (width / 2) + within / 2;
}

// n elements, `stride` of them apart.
void widen(const StoredTensor& t, int64_t first, int64_t stride, int64_t n, float* x) {
  if (*t.dtype == tensor::DType::F32) {
    const std::byte* from = t.data.data() + 4 * first;
    if (stride == 1) {
      std::memcpy(x, from, static_cast<size_t>(n) * sizeof(float));
      return;
    }
    for (int64_t j = 0; j < n; ++j) std::memcpy(x + j, from + 4 * stride * j, sizeof(float));
    return;
  }
  const std::byte* from = t.data.data() + 2 * first;
  const auto each = [&](auto to_float) {
    for (int64_t j = 0; j < n; ++j) {
      uint16_t half;
      std::memcpy(&half, from + 2 * stride * j, 2);
      x[j] = to_float(half);
    }
  };
  if (*t.dtype == tensor::DType::BF16) {
    each([](uint16_t half) { return num::bf16_to_float(half); });
  } else {
    each([](uint16_t half) { return num::half_to_float(half); });
  }
}

// What is computed is rounded to F16 where the folder has that, as the other converters do it.
template <class Operation>
void each_value(const Output& output, const StoredTensor& t, float* x, Operation operation) {
  const bool rounds = *t.dtype == tensor::DType::F16;
  for (int64_t j = 0; j < output.cols; ++j) {
    x[j] = operation(x[j]);
    if (rounds) x[j] = num::half_to_float(num::float_to_half(x[j]));
  }
}

// A row whose heads stand in turns, each read from its place in the folder.
void widen_in_turns(const HeadTurns& turns, const StoredTensor& t, int64_t first, float* x) {
  for (int64_t i = 0; i < turns.n_each; ++i) {
    for (int64_t group = 0; group < turns.n_groups; ++group, x += turns.width)
      widen(t, first + (group * turns.n_each + i) * turns.width, 1, turns.width, x);
  }
}

void compute(const Output& output, int64_t row, const StoredTensor& t, float* x) {
  if (output.plus_one) each_value(output, t, x, [](float value) { return value + 1.0f; });
  if (output.negative_exp)
    each_value(output, t, x, [](float value) { return static_cast<float>(-std::exp(static_cast<double>(value))); });
  for (const Factors& factors : output.factors) {
    if (row >= factors.end) continue;
    for (const float factor : factors.values) each_value(output, t, x, [&](float value) { return value * factor; });
    break;
  }
}

}  // namespace

Place place_of(const Output& output, int64_t row) {
  int64_t at = before_turns(output, row);
  for (const Slice& slice : output.slices) {
    if (at < slice.n_rows) {
      const int64_t place = slice.first + at * slice.step;
      if (slice.from_columns) return {slice.tensor, slice.block_row, place, &slice};
      return {slice.tensor, place, -1, &slice};
    }
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
  if (place.tensor == nullptr) {  // behind the folder's rows
    std::fill_n(x, output.cols, 0.0f);
    return;
  }
  const StoredTensor& t = *place.tensor;
  if (place.column >= 0) {
    widen(t, place.row * t.cols() + place.column, t.cols(), output.cols, x);
  } else if (output.columns.n_groups > 0) {
    widen_in_turns(output.columns, t, place.row * output.cols, x);
  } else {
    widen(t, place.row * output.cols, 1, output.cols, x);
  }
  compute(output, row, t, x);
}

// The folder has 32 values as 16 bytes, value 2j in the low half of byte j; a GGUF block has its scale first, value j
// in the low half of byte j and value 16 + j in the high one.
void read_packed_row(const Output& output, int64_t row, std::byte* bytes) {
  const Place place = place_of(output, row);
  const int64_t n_blocks = output.cols / 32;
  const std::byte* nibbles = place.tensor->data.data() + place.row * n_blocks * 16;
  const std::byte* scale = output.scales->data.data() + place.row * n_blocks;
  for (int64_t block = 0; block < n_blocks; ++block, nibbles += 16, bytes += 17) {
    bytes[0] = scale[block];
    const auto value = [&](size_t i) { return (i % 2 == 0 ? nibbles[i / 2] : nibbles[i / 2] >> 4) & std::byte{15}; };
    for (size_t j = 0; j < 16; ++j) bytes[1 + j] = value(j) | value(16 + j) << 4;
  }
}

}  // namespace assay::converting
