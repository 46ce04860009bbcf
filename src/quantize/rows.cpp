// See rows.h.
#include "quantize/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "num/f16.h"
#include "quantize/evening.h"

namespace assay::quantizing {
namespace {

using quant::encode::Effort;
using tensor::DType;

// A block's largest value is a half-precision scale times a level; beyond the largest half itself no weight of a model
// lies, and float32 sums of squares stay finite far above it.
float limit_of(DType dtype) noexcept {
  return dtype == DType::F32 || dtype == DType::BF16 ? std::numeric_limits<float>::max() : 65504.0f;
}

// As quant::decode_row; the float types in loops of their own, which take a tenth of the time.
void to_floats(const quant::Format& format, const std::byte* row, int64_t n, float* x) noexcept {
  const auto each_half = [&](auto convert) {
    for (int64_t j = 0; j < n; ++j) {
      uint16_t half;
      std::memcpy(&half, row + 2 * j, 2);
      x[j] = convert(half);
    }
  };
  if (format.dtype == DType::F32) {
    std::memcpy(x, row, static_cast<size_t>(n) * sizeof(float));
  } else if (format.dtype == DType::BF16) {
    each_half([](uint16_t half) { return num::bf16_to_float(half); });
  } else if (format.dtype == DType::F16) {
    each_half([](uint16_t half) { return num::half_to_float(half); });
  } else {
    quant::decode_row(format, row, n, x);
  }
}

// The bits of the largest magnitude; those of a NaN are above those of an infinity.
uint32_t largest_bits(const float* x, int64_t n) noexcept {
  uint32_t largest = 0;
  for (int64_t j = 0; j < n; ++j) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[j]) & 0x7FFFFFFFu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

double squared_error(const float* x, const float* y, const float* w, int64_t n) noexcept {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double e = static_cast<double>(x[j]) - static_cast<double>(y[j]);
    sum += (w == nullptr ? 1.0 : static_cast<double>(w[j])) * (e * e);
  }
  return sum;
}

}  // namespace

RowEncoder::RowEncoder(const tensor::TensorView& source, DType dtype, std::span<const float> importance, Effort effort,
                       base::ThreadPool& pool)
    : source_(source), importance_(importance), evened_(evened(importance, source.shape.cols(), dtype)),
      from_(*quant::find_format(source.dtype)), to_(*quant::find_format(dtype)),
      encode_(quant::encode::find_encoder(dtype)), effort_(effort), pool_(pool),
      row_bytes_(source.shape.cols() / tensor::traits(dtype).block_elements * tensor::traits(dtype).block_bytes),
      limit_(limit_of(dtype)), scratch_(static_cast<size_t>(pool.n_threads())) {
  for (Scratch& s : scratch_) {
    s.x.resize(static_cast<size_t>(source.shape.cols()));
    if (effort != Effort::best) continue;
    s.back.resize(s.x.size());
    s.normal.resize(static_cast<size_t>(row_bytes_));
  }
}

// Matrices of a tensor follow each other, each with rows as many as its last dimension but one.
const float* RowEncoder::weights_of(std::span<const float> weights, int64_t row) const noexcept {
  if (weights.empty()) return nullptr;
  const int64_t rows_of_matrix =
      source_.shape.rank < 2 ? 1 : source_.shape.dims[static_cast<size_t>(source_.shape.rank - 2)];
  return weights.data() + row / rows_of_matrix * source_.shape.cols();
}

std::optional<BadValue> RowEncoder::encode_row(int64_t row, std::byte* out, Scratch& scratch, Lost& lost) const {
  const int64_t n = source_.shape.cols();
  float* x = scratch.x.data();
  to_floats(from_, source_.row(row), n, x);
  if (largest_bits(x, n) > std::bit_cast<uint32_t>(limit_)) {
    const int64_t at = std::find_if(x, x + n, [&](float value) { return !(std::abs(value) <= limit_); }) - x;
    return BadValue{row * n + at, x[at]};
  }
  const float* w = weights_of(evened_, row);
  encode_(x, w, n, effort_, out);
  if (effort_ != Effort::best) return std::nullopt;
  encode_(x, w, n, Effort::normal, scratch.normal.data());
  quant::decode_row(to_, out, n, scratch.back.data());
  lost.error = squared_error(x, scratch.back.data(), w, n);
  quant::decode_row(to_, scratch.normal.data(), n, scratch.back.data());
  lost.error_normal = squared_error(x, scratch.back.data(), w, n);
  return std::nullopt;
}

std::optional<BadValue> RowEncoder::encode(int64_t begin, int64_t n, std::byte* out) {
  std::vector<std::optional<BadValue>> bad(scratch_.size());
  std::vector<Lost> lost(static_cast<size_t>(n));
  pool_.run(n, [&](int64_t i, int thread) {
    const auto t = static_cast<size_t>(thread);
    const std::optional<BadValue> found =
        encode_row(begin + i, out + i * row_bytes_, scratch_[t], lost[static_cast<size_t>(i)]);
    if (found && (!bad[t] || found->index < bad[t]->index)) bad[t] = found;
  });
  std::optional<BadValue> first;
  for (const std::optional<BadValue>& b : bad) {
    if (b && (!first || b->index < first->index)) first = b;
  }
  for (const Lost& row : lost) {  // in the rows' order, whatever thread had them
    lost_.error += row.error;
    lost_.error_normal += row.error_normal;
  }
  return first;
}

double RowEncoder::error_of_rows(int64_t n, const std::function<int64_t(int64_t)>& row_of) {
  std::vector<double> errors(static_cast<size_t>(n));
  pool_.run(n, [&](int64_t i, int thread) {
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    const int64_t row = row_of(i), n_columns = source_.shape.cols();
    std::vector<std::byte> bytes(static_cast<size_t>(row_bytes_));
    scratch.back.resize(scratch.x.size());
    to_floats(from_, source_.row(row), n_columns, scratch.x.data());
    encode_(scratch.x.data(), weights_of(evened_, row), n_columns, effort_, bytes.data());
    quant::decode_row(to_, bytes.data(), n_columns, scratch.back.data());
    errors[static_cast<size_t>(i)] =
        squared_error(scratch.x.data(), scratch.back.data(), weights_of(importance_, row), n_columns);
  });
  double sum = 0;
  for (const double error : errors) sum += error;
  return sum;
}

std::optional<BadValue> first_not_finite(tensor::DType dtype, std::span<const std::byte> bytes, int64_t first_index) {
  const quant::Format* format = quant::find_format(dtype);
  if (format == nullptr || format->activation != quant::Activation::f32) return std::nullopt;
  constexpr int64_t kPiece = 1024;
  const int64_t size = tensor::traits(dtype).block_bytes, n = static_cast<int64_t>(bytes.size()) / size;
  float x[kPiece];
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t count = std::min(kPiece, n - begin);
    to_floats(*format, bytes.data() + begin * size, count, x);
    if (largest_bits(x, count) < 0x7F800000u) continue;
    const int64_t at = std::find_if(x, x + count, [](float value) { return !std::isfinite(value); }) - x;
    return BadValue{first_index + begin + at, x[at]};
  }
  return std::nullopt;
}

}  // namespace assay::quantizing
