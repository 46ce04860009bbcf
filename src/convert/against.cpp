// See against.h.
#include "convert/against.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "assay/error.h"
#include "convert/rows.h"
#include "quant/encode/encoder.h"
#include "quant/format.h"

namespace assay::converting {
namespace {

using tensor::DType;

constexpr int64_t kSampleRows = 64;
// An encoder with weights of its own gives up plain error for what it weighs; a wrong row is farther off by more than
// this.
constexpr double kRatioMax = 2.0;
constexpr double kRowRatioMax = 4.0, kRowErrorMin = 0.5;

bool is_plain(DType dtype) noexcept { return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16; }

// Rows spread over a tensor, the first and the last among them.
std::vector<int64_t> spread_rows(int64_t n_rows, int64_t n_wanted) {
  std::vector<int64_t> rows;
  const int64_t n = std::min(n_rows, n_wanted);
  for (int64_t i = 0; i < n; ++i)
    rows.push_back(n == 1 ? 0
                          : static_cast<int64_t>(static_cast<double>(n_rows - 1) * static_cast<double>(i) /
                                                 static_cast<double>(n - 1)));
  return rows;
}

int64_t matrix_cols(const gguf::Tensor& tensor) { return tensor.view.shape.cols(); }

// A permuted vector is read element by element; here it is one row again.
void read_expected(const Output& output, int64_t row, int64_t cols, float* x) {
  if (output.scales != nullptr) {
    std::vector<std::byte> bytes(static_cast<size_t>(output.cols / 32 * 17));
    read_packed_row(output, row, bytes.data());
    return quant::decode_row(*quant::find_format(DType::MXFP4), bytes.data(), cols, x);
  }
  if (output.cols == cols) return read_row(output, row, x);
  for (int64_t j = 0; j < cols; ++j) read_row(output, row * cols + j, x + j);
}

}  // namespace

void decode_row(const gguf::Tensor& tensor, int64_t row, float* x) {
  const quant::Format* format = quant::find_format(tensor.view.dtype);
  if (format == nullptr)
    throw Error(Errc::unsupported, fmt::format("{} is {}, which is no type of weights", tensor.name,
                                               tensor::traits(tensor.view.dtype).name));
  quant::decode_row(*format, tensor.view.row(row), matrix_cols(tensor), x);
}

TensorJudge::TensorJudge(const gguf::Tensor& found, const Output& expected, base::ThreadPool& pool)
    : found_(found), expected_(expected), pool_(pool) {}

TensorJudge::RowError TensorJudge::row_error(int64_t row, std::vector<float>& x, std::vector<float>& y,
                                             std::vector<std::byte>& bytes) const {
  const int64_t cols = matrix_cols(found_);
  const DType dtype = found_.view.dtype;
  RowError r;
  read_expected(expected_, row, cols, x.data());
  if (is_plain(dtype)) {  // the type's own rounding of the folder's value
    quant::encode::find_encoder(dtype)(x.data(), nullptr, cols, quant::encode::Effort::normal, bytes.data());
    const std::byte* own = found_.view.row(row);
    if (std::memcmp(bytes.data(), own, bytes.size()) == 0) return r;
    quant::decode_row(*quant::find_format(dtype), bytes.data(), cols, x.data());
  }
  decode_row(found_, row, y.data());
  float farthest = -1;
  for (int64_t j = 0; j < cols; ++j) {
    const double d = static_cast<double>(y[static_cast<size_t>(j)]) - static_cast<double>(x[static_cast<size_t>(j)]);
    r.error += d * d;
    r.size += static_cast<double>(x[static_cast<size_t>(j)]) * static_cast<double>(x[static_cast<size_t>(j)]);
    const auto far = static_cast<float>(std::abs(d));
    if (far > farthest || !(far == far)) {
      farthest = far;
      r.column = j;
      r.found = y[static_cast<size_t>(j)];
      r.expected = x[static_cast<size_t>(j)];
    }
  }
  r.is_wrong = is_plain(dtype) || !std::isfinite(r.error);
  return r;
}

void TensorJudge::measure_encoder() {
  const quant::encode::EncodeRow encode = quant::encode::find_encoder(found_.view.dtype);
  if (encode == nullptr || expected_.scales != nullptr) return;
  const int64_t cols = matrix_cols(found_);
  std::vector<float> x(static_cast<size_t>(cols)), y(x);
  std::vector<std::byte> bytes(static_cast<size_t>(found_.view.row_bytes()));
  const quant::Format& format = *quant::find_format(found_.view.dtype);
  double error = 0, size = 0;
  for (const int64_t row : spread_rows(found_.view.shape.rows(), kSampleRows)) {
    read_expected(expected_, row, cols, x.data());
    encode(x.data(), nullptr, cols, quant::encode::Effort::normal, bytes.data());
    quant::decode_row(format, bytes.data(), cols, y.data());
    for (size_t j = 0; j < x.size(); ++j) {
      error += (static_cast<double>(y[j]) - static_cast<double>(x[j])) *
               (static_cast<double>(y[j]) - static_cast<double>(x[j]));
      size += static_cast<double>(x[j]) * static_cast<double>(x[j]);
    }
  }
  best_ = size > 0 ? std::sqrt(error / size) : 0;
}

Finding TensorJudge::judge() {
  const int64_t rows = found_.view.shape.rows(), cols = matrix_cols(found_);
  const bool plain = is_plain(found_.view.dtype);
  if (!plain) measure_encoder();
  const auto n_threads = static_cast<size_t>(pool_.n_threads());
  std::vector<std::vector<float>> xs(n_threads, std::vector<float>(static_cast<size_t>(cols))), ys(xs);
  std::vector<std::vector<std::byte>> bytes(n_threads,
                                            std::vector<std::byte>(static_cast<size_t>(found_.view.row_bytes())));
  constexpr int64_t kSlab = 4096;
  Finding f;
  double error = 0, size = 0;
  std::vector<RowError> slab;
  for (int64_t begin = 0; begin < rows; begin += kSlab) {
    const int64_t n = std::min(kSlab, rows - begin);
    slab.assign(static_cast<size_t>(n), {});
    pool_.run(n, [&](int64_t i, int thread) {
      const auto t = static_cast<size_t>(thread);
      slab[static_cast<size_t>(i)] = row_error(begin + i, xs[t], ys[t], bytes[t]);
    });
    for (int64_t i = 0; i < n; ++i) {
      RowError& r = slab[static_cast<size_t>(i)];
      error += r.error;
      size += r.size;
      const double relative = r.size > 0 ? std::sqrt(r.error / r.size) : r.error > 0 ? 1 : 0;
      if (!plain && relative > kRowErrorMin && relative > kRowRatioMax * best_.value_or(0.2)) r.is_wrong = true;
      if (!r.is_wrong) continue;
      if (f.n_rows_wrong++ == 0) {
        f.first_row = begin + i;
        f.column = r.column;
        f.found = r.found;
        f.expected = r.expected;
      }
      f.last_row = begin + i;
    }
  }
  f.error = size > 0 ? std::sqrt(error / size) : error > 0 ? 1 : 0;
  f.is_exact = plain && f.n_rows_wrong == 0;
  if (best_) f.ratio = *best_ > 0 ? f.error / *best_ : f.error > 1e-6 ? HUGE_VAL : 0;
  f.passed = f.n_rows_wrong == 0 && (plain || (best_ ? f.ratio <= kRatioMax : f.error <= 0.75));
  if (expected_.scales != nullptr && f.n_rows_wrong == 0)
    f.passed = f.error <= (found_.view.dtype == DType::MXFP4 ? 0.0 : 0.75);
  return f;
}

double TensorJudge::distance_from(const Output& other) const {
  const int64_t cols = matrix_cols(found_);
  std::vector<float> x(static_cast<size_t>(cols)), y(x);
  double error = 0, size = 0;
  for (const int64_t row : spread_rows(found_.view.shape.rows(), kSampleRows)) {
    read_expected(other, row, cols, x.data());
    decode_row(found_, row, y.data());
    for (size_t j = 0; j < x.size(); ++j) {
      error += (static_cast<double>(y[j]) - static_cast<double>(x[j])) *
               (static_cast<double>(y[j]) - static_cast<double>(x[j]));
      size += static_cast<double>(x[j]) * static_cast<double>(x[j]);
    }
  }
  return size > 0 ? std::sqrt(error / size) : error > 0 ? 1 : 0;
}

}  // namespace assay::converting
