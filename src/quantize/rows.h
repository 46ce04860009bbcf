// Rows of a tensor: to floats, held against what the new format can hold, and to blocks, side by side on a pool.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quant/encode/encoder.h"
#include "quant/format.h"
#include "tensor/view.h"

namespace assay::quantizing {

// The first value of some rows that cannot be written.
struct BadValue {
  int64_t index = 0;  // in the tensor
  float value = 0;
};

// Sums over rows, for the report of what more effort brought; weighted where the encoding is.
struct Lost {
  double error = 0, error_normal = 0;  // squared; of the normal effort only where more is spent
};

class RowEncoder {
 public:
  // Encodes rows of `source` as `dtype`. importance: how much the error of each column counts, a row for each matrix of
  // the tensor in turn; empty: all the same. They are encoded with it as evening.h evens it for the format. The view
  // and the importance must outlive this.
  RowEncoder(const tensor::TensorView& source, tensor::DType dtype, std::span<const float> importance,
             quant::encode::Effort effort, base::ThreadPool& pool);

  int64_t row_bytes() const noexcept { return row_bytes_; }
  // Rows begin to begin + n into out. nullopt: all were written.
  std::optional<BadValue> encode(int64_t begin, int64_t n, std::byte* out);
  const Lost& lost() const noexcept { return lost_; }
  // The squared error, weighted by the importance as it was given (so that formats can be compared), summed over n
  // rows: row_of(0) to row_of(n - 1).
  double error_of_rows(int64_t n, const std::function<int64_t(int64_t)>& row_of);

 private:
  struct Scratch {
    std::vector<float> x, back;
    std::vector<std::byte> normal;
  };
  // The part of a row for each matrix that belongs to this row of the tensor.
  const float* weights_of(std::span<const float> weights, int64_t row) const noexcept;
  std::optional<BadValue> encode_row(int64_t row, std::byte* out, Scratch& scratch, Lost& lost) const;

  const tensor::TensorView& source_;
  std::span<const float> importance_;
  std::vector<float> evened_;
  const quant::Format& from_;
  const quant::Format& to_;
  quant::encode::EncodeRow encode_;
  quant::encode::Effort effort_;
  base::ThreadPool& pool_;
  int64_t row_bytes_;
  float limit_;  // magnitudes that the format can hold
  std::vector<Scratch> scratch_;
  Lost lost_;
};

// The first value of a float tensor's bytes that is not finite; the bytes are of whole elements. nullopt: none, or no
// float type.
std::optional<BadValue> first_not_finite(tensor::DType dtype, std::span<const std::byte> bytes, int64_t first_index);

}  // namespace assay::quantizing
