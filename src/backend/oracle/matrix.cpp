// See matrix.h. The inner tile has the same source on every instruction set; only the register width differs, never the
// order of a sum, and without fma the bits are the same too.
#include "backend/oracle/matrix.h"

#include <algorithm>
#include <cstring>

#include "quant/format.h"

namespace assay::backend::oracle {
namespace {

constexpr int64_t kTokensPerTile = 16;
constexpr int64_t kRowsPerTile = 4;
constexpr int64_t kRowsPerTask = 32;

// x [k, 16], w four rows of k, out [4, 16]
using Tile = void (*)(const double* x, const double* w, int64_t k, double* out);

// Vec: as wide as the machine's registers (compilers make slow code of wider ones). Runs over the tile in strips of
// two, so that the sums of four rows stay in registers.
template <class Vec>
__attribute__((always_inline)) inline void tile_body(const double* x, const double* w, int64_t k, double* out) {
  constexpr auto kWidth = static_cast<int64_t>(sizeof(Vec) / sizeof(double));
  for (int64_t strip = 0; strip < kTokensPerTile; strip += 2 * kWidth) {
    Vec sum[kRowsPerTile][2] = {};
    const Vec* columns = static_cast<const Vec*>(static_cast<const void*>(x + strip));
    for (int64_t i = 0; i < k; ++i, columns += kTokensPerTile / kWidth) {
      const Vec x0 = columns[0], x1 = columns[1];
      for (int64_t r = 0; r < kRowsPerTile; ++r) {
        const double weight = w[r * k + i];
        sum[r][0] += x0 * weight;
        sum[r][1] += x1 * weight;
      }
    }
    for (int64_t r = 0; r < kRowsPerTile; ++r) std::memcpy(out + r * kTokensPerTile + strip, sum[r], sizeof(sum[r]));
  }
}

using Vec2 = double __attribute__((vector_size(16)));
void tile_plain(const double* x, const double* w, int64_t k, double* out) { tile_body<Vec2>(x, w, k, out); }

#if defined(__x86_64__)
using Vec4 = double __attribute__((vector_size(32)));
using Vec8 = double __attribute__((vector_size(64)));
__attribute__((target("avx2"))) void tile_avx2(const double* x, const double* w, int64_t k, double* out) {
  tile_body<Vec4>(x, w, k, out);
}
__attribute__((target("avx512f"))) void tile_avx512(const double* x, const double* w, int64_t k, double* out) {
  tile_body<Vec8>(x, w, k, out);
}

Tile best_tile() {
  if (__builtin_cpu_supports("avx512f")) return tile_avx512;
  if (__builtin_cpu_supports("avx2")) return tile_avx2;
  return tile_plain;
}
#else
Tile best_tile() { return tile_plain; }
#endif

int64_t n_tiles(int64_t n_tokens) { return (n_tokens + kTokensPerTile - 1) / kTokensPerTile; }

}  // namespace

MatrixProduct::MatrixProduct(int64_t n_tokens_max, int64_t k_max, int n_threads)
    : packed_(static_cast<uint64_t>(n_tiles(n_tokens_max) * kTokensPerTile * k_max) * sizeof(double),
              "the oracle's activations"),
      decoded_row_(static_cast<size_t>(n_threads), std::vector<float>(static_cast<size_t>(k_max))) {
  for (int i = 0; i < n_threads; ++i) {
    weights_.emplace_back(static_cast<uint64_t>(kRowsPerTask * k_max) * sizeof(double), "the oracle's weights");
  }
}

size_t MatrixProduct::bytes() const noexcept {
  size_t sum = packed_.size();
  for (const base::AlignedBuffer& buffer : weights_) sum += buffer.size();
  return sum;
}

void MatrixProduct::pack(const double* x, int64_t n_tokens, int64_t k, base::ThreadPool& pool) {
  double* packed = static_cast<double*>(static_cast<void*>(packed_.data()));
  pool.run(n_tiles(n_tokens), [&](int64_t tile, int) {
    double* out = packed + tile * k * kTokensPerTile;
    for (int64_t t = 0; t < kTokensPerTile; ++t) {
      const int64_t token = tile * kTokensPerTile + t;
      for (int64_t i = 0; i < k; ++i) out[i * kTokensPerTile + t] = token < n_tokens ? x[token * k + i] : 0.0;
    }
  });
}

void MatrixProduct::run(const double* x, int64_t n_tokens, const tensor::TensorView& w, std::span<const double> bias,
                        double* y, base::ThreadPool& pool) {
  const quant::Format& format = *quant::find_format(w.dtype);
  const int64_t k = w.shape.cols();
  const RowDecoder decode = [&](int64_t row, float* out) { quant::decode_row(format, w.row(row), k, out); };
  run(x, n_tokens, k, w.shape.rows(), decode, bias, y, pool);
}

void MatrixProduct::run(const double* x, int64_t n_tokens, int64_t k, int64_t n_rows, const RowDecoder& decode,
                        std::span<const double> bias, double* y, base::ThreadPool& pool) {
  const Tile tile = best_tile();
  pack(x, n_tokens, k, pool);
  const double* packed = static_cast<const double*>(static_cast<const void*>(packed_.data()));

  pool.run((n_rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int thread) {
    double* rows = static_cast<double*>(static_cast<void*>(weights_[static_cast<size_t>(thread)].data()));
    float* decoded = decoded_row_[static_cast<size_t>(thread)].data();
    const int64_t begin = task * kRowsPerTask;
    const int64_t end = std::min(begin + kRowsPerTask, n_rows);
    for (int64_t r = begin; r < end; ++r) {
      decode(r, decoded);
      std::copy(decoded, decoded + k, rows + (r - begin) * k);
    }
    double sums[kRowsPerTile * kTokensPerTile];
    for (int64_t i_tile = 0; i_tile < n_tiles(n_tokens); ++i_tile) {
      const int64_t n_here = std::min(kTokensPerTile, n_tokens - i_tile * kTokensPerTile);
      for (int64_t r = begin; r < end;
           r += kRowsPerTile) {  // beyond the end the tile reads rows of an earlier task, which nobody uses
        tile(packed + i_tile * k * kTokensPerTile, rows + (r - begin) * k, k, sums);
        for (int64_t j = r; j < std::min(r + kRowsPerTile, end); ++j) {
          const double shift = bias.empty() ? 0.0 : bias[static_cast<size_t>(j)];
          for (int64_t t = 0; t < n_here; ++t) {
            y[(i_tile * kTokensPerTile + t) * n_rows + j] = sums[(j - r) * kTokensPerTile + t] + shift;
          }
        }
      }
    }
  });
}

}  // namespace assay::backend::oracle
