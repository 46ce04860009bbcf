// y = x * transpose(W) + bias in float64, with W decoded exactly from its file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "tensor/view.h"

namespace assay::backend::oracle {

class MatrixProduct {
 public:
  MatrixProduct(int64_t n_tokens_max, int64_t k_max, int n_threads);

  // x [n_tokens, k], y [n_tokens, w.rows()], both row-major and dense; bias empty or w.rows() values. Every y is one
  // sum over k ascending.
  void run(const double* x, int64_t n_tokens, const tensor::TensorView& w, std::span<const double> bias, double* y,
           base::ThreadPool& pool);
  // The same with rows as the caller decodes them: k floats of row `row`, from any thread.
  using RowDecoder = std::function<void(int64_t row, float* out)>;
  void run(const double* x, int64_t n_tokens, int64_t k, int64_t n_rows, const RowDecoder& decode,
           std::span<const double> bias, double* y, base::ThreadPool& pool);

  size_t bytes() const noexcept;

 private:
  void pack(const double* x, int64_t n_tokens, int64_t k, base::ThreadPool& pool);

  base::AlignedBuffer packed_;                   // x as [tile][k][kTokensPerTile], zeros where tokens end
  std::vector<base::AlignedBuffer> weights_;     // per thread: [kRowsPerTask, k] decoded
  std::vector<std::vector<float>> decoded_row_;  // per thread: one row as the format decodes it
};

}  // namespace assay::backend::oracle
