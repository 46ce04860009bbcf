// See linear_bound.h.
#include "bounds/linear_bound.h"

#include <algorithm>
#include <cmath>

#include "backend/oracle/matrix.h"
#include "backend/oracle/oracle_ops.h"
#include "base/index.h"
#include "bounds/known_activations.h"
#include "bounds/rounding.h"
#include "ops/linear/linear.h"
#include "ops/plan/float64.h"
#include "quant/format.h"

namespace assay::bounds {
namespace {

constexpr float kNormRoundUp = 1.0f + 0x1p-20f;  // norms are kept as floats, never below the true ones

// How the source multiplies with this weight format.
struct Scheme {
  bool quantised = false;   // activations are integers
  bool half_scale = false;  // whose scale is an f16, and so is its product with their sum
  bool has_min = false;     // which a format's minimum meets
  int bits = 0;
  int64_t block = 0;
  double x_rounding = 0, x_tiny = 0;  // of activations that are rounded to f16 or bf16
  double n_roundings = 0;
};

Scheme scheme_of(const quant::Format& format, int64_t k, bool has_bias, const Declared& declared) {
  Scheme s;
  const bool float_weights = format.activation == quant::Activation::f32;
  s.quantised = declared.activation_bits > 0 && !float_weights;
  if (s.quantised) {
    s.bits = declared.activation_bits;
    s.block = declared.activation_block != 0                 ? declared.activation_block
              : format.activation == quant::Activation::a256 ? 256
                                                             : 32;
    s.half_scale = declared.activation_scale_f16 && s.block == 32;
    s.has_min = format.has_min;
  }
  if (declared.activations_f16 && float_weights && format.dtype != tensor::DType::F32) {
    s.x_rounding = format.dtype == tensor::DType::BF16 ? kUnitBfloat : kUnitHalf;
    s.x_tiny = format.dtype == tensor::DType::BF16 ? 0 : kTinyHalf;
  }
  const auto chunk = [](int64_t n_blocks) { return static_cast<double>((n_blocks + 7) / 8); };
  if (!declared.own_sums) {
    s.n_roundings = static_cast<double>(k) + 5;
  } else if (s.quantised) {
    s.n_roundings = (s.bits == 15 ? 6 : 3) + chunk((k + s.block - 1) / s.block) + 3;
  } else {
    s.n_roundings = chunk(n_norms(k)) + 5 + 3;
  }
  s.n_roundings += (has_bias ? 1 : 0) + (format.has_min ? 1 : 0) + 1;
  return s;
}

// Per row of weights, norms over every 32 elements: of the weights, and of the magnitudes that the format's dot adds.
struct WeightNorms {
  std::vector<float> weights, magnitudes;  // magnitudes: empty where they are the same
  std::vector<float> minima;               // of formats of 32, where they are asked for
};

// Adds |minimum| to |scale w| = |w - minimum| for a decoded row.
void make_magnitudes(const quant::Format& format, const std::byte* row, int64_t k, std::span<float> w) {
  const tensor::DTypeTraits& t = tensor::traits(format.dtype);
  for (int64_t j = 0; j < k; j += t.block_elements, row += t.block_bytes) {
    const float m = format.scales(row).m;
    quant::Integers256 integers;
    if (format.integers != nullptr) format.integers(row, integers);
    for (int64_t i = 0; i < t.block_elements; ++i) {
      const float minimum = format.integers != nullptr ? m * static_cast<float>(integers.min[i / 16]) : m;
      float& value = w[at(j + i)];
      value = std::fabs(value - minimum) + std::fabs(minimum);
    }
  }
}

void block_norms(std::span<const float> w, float* out) {
  for (size_t begin = 0; begin < w.size(); begin += kNormBlock) {
    double squares = 0;
    for (const float value : w.subspan(begin, std::min<size_t>(kNormBlock, w.size() - begin))) {
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    *out++ = static_cast<float>(std::sqrt(squares)) * kNormRoundUp;
  }
}

WeightNorms weight_norms(const tensor::TensorView& w, int64_t first, int64_t n_rows, bool with_minima,
                         base::ThreadPool& pool) {
  const quant::Format& format = *quant::find_format(w.dtype);
  const int64_t k = w.shape.cols(), n = n_norms(k);
  WeightNorms norms;
  norms.weights.resize(at(n_rows * n));
  if (format.has_min) norms.magnitudes.resize(at(n_rows * n));
  if (with_minima) norms.minima.resize(at(n_rows * n));
  std::vector<std::vector<float>> decoded(at(pool.n_threads()), std::vector<float>(at(k)));
  pool.run(n_rows, [&](int64_t r, int thread) {
    std::vector<float>& row = decoded[at(thread)];
    quant::decode_row(format, w.row(first + r), k, row.data());
    block_norms(row, norms.weights.data() + r * n);
    if (!format.has_min) return;
    make_magnitudes(format, w.row(first + r), k, row);
    block_norms(row, norms.magnitudes.data() + r * n);
    if (!with_minima) return;
    const auto bytes = static_cast<std::ptrdiff_t>(tensor::traits(w.dtype).block_bytes);
    for (int64_t b = 0; b < n; ++b) norms.minima[at(r * n + b)] = format.scales(w.row(first + r) + b * bytes).m;
  });
  return norms;
}

double norm_of(std::span<const double> x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares) * (1 + 0x1p-40);
}

double largest_of(std::span<const double> x) {
  double largest = 0;
  for (const double value : x) largest = std::isnan(value) ? value : std::max(largest, std::fabs(value));
  return largest;
}

// Per block of 32 of one token: the errors that x itself carries into the sum, and the magnitude that float roundings
// are relative to.
void token_norms(const Scheme& s, const Declared& declared, std::span<const double> x, std::span<const double> error,
                 double* carried, double* rounded) {
  const double u = unit(declared);
  const double total = gamma(s.n_roundings, u) + gamma(static_cast<double>(x.size()) + 2, kUnitDouble);
  const size_t step_block = s.quantised ? at(s.block) : x.size();
  for (size_t begin = 0; begin < x.size(); begin += step_block) {
    const size_t end = std::min(begin + step_block, x.size());
    const std::span<const double> block = x.subspan(begin, end - begin);
    const std::span<const double> block_error = error.empty() ? error : error.subspan(begin, end - begin);
    double constant = s.x_tiny, relative = s.x_rounding, of_magnitudes = 0;
    if (s.quantised) {
      const double largest = largest_of(block) + largest_of(block_error);
      const double half_step = s.bits == 15 ? 0x1p-8 + u : 0.5;
      constant = largest / 127 * half_step * (1 + 3 * u);
      relative = gamma(3, u);
      if (largest < 0x1p-99) relative = 1;  // such a block may be taken for zeros
      if (s.half_scale) {
        (s.has_min ? of_magnitudes : relative) +=
            kUnitHalf * (1 + kUnitHalf);  // scale w and minimum meet different roundings
        constant = constant * (1 + kUnitHalf) + 127 * kTinyHalf;
      }
    }
    for (size_t j = 0; j < block.size(); j += kNormBlock) {
      const size_t n = std::min<size_t>(kNormBlock, block.size() - j);
      const double x_norm = norm_of(block.subspan(j, n));
      const double error_norm = block_error.empty() ? 0 : norm_of(block_error.subspan(j, n));
      const double step = constant * std::sqrt(static_cast<double>(n)) + relative * (x_norm + error_norm);
      *carried++ = step + error_norm;
      *rounded++ = (total + of_magnitudes) * (x_norm + error_norm + step);
    }
  }
}

// Several row blocks side by side, for one pass over the weights.
std::vector<double> concatenated(std::initializer_list<std::span<const double>> parts) {
  std::vector<double> all;
  size_t n = 0;
  for (const std::span<const double> part : parts) n += part.size();
  all.reserve(n);
  for (const std::span<const double> part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// norms [n_rows, k] times x [n_tokens, k].
std::vector<double> norm_product(std::span<const float> norms, std::span<const double> x, int64_t k,
                                 base::ThreadPool& pool) {
  const auto n_tokens = static_cast<int64_t>(x.size()) / k, n_rows = static_cast<int64_t>(norms.size()) / k;
  std::vector<double> y(at(n_tokens * n_rows));
  backend::oracle::MatrixProduct product(n_tokens, k, pool.n_threads());
  product.run(
      x.data(), n_tokens, k, n_rows, [&](int64_t row, float* out) { std::copy_n(norms.data() + row * k, k, out); }, {},
      y.data(), pool);
  return y;
}

}  // namespace

Expected local_linear(const OpInputs& in, const ops::Linear& op, const Declared& declared, base::ThreadPool& pool,
                      const LocalOptions& options) {
  const tensor::TensorView& w = in.plan.weights[at(op.w)].view;
  const quant::Format& format = *quant::find_format(w.dtype);
  const int64_t k = w.shape.cols(), n = in.a.n, first = options.first_column;
  const int64_t n_columns = options.n_columns < 0 ? w.shape.rows() - first : options.n_columns;
  const Scheme scheme = scheme_of(format, k, op.bias != ops::kNone, declared);
  std::vector<double> bias;
  if (op.bias != ops::kNone) {
    bias = ops::vector_of(in.plan.weights[at(op.bias)]);
    bias = {bias.begin() + first, bias.begin() + first + n_columns};
  }

  const KnownActivations known = options.as_declared ? known_activations(in.a, format, declared) : KnownActivations{};
  const std::span<const double> chain = options.chain != nullptr ? options.chain->a.values : std::span<const double>();
  const std::vector<double> x = concatenated({in.a.values, known.values, chain});
  const int64_t n_all = static_cast<int64_t>(x.size()) / k;
  std::vector<double> y(at(n_all * n_columns));
  backend::oracle::MatrixProduct product(n_all, k, pool.n_threads());
  const auto decode = [&](int64_t row, float* out) { quant::decode_row(format, w.row(first + row), k, out); };
  product.run(x.data(), n_all, k, n_columns, decode, bias, y.data(), pool);

  const int64_t n_blocks = n_norms(k);
  const int64_t n_declared = known.values.empty() ? 0 : n;
  std::vector<double> carried(at(n * n_blocks)), rounded(at((n + n_declared) * n_blocks));
  Scheme float_part = scheme;  // as declared only float roundings remain
  float_part.quantised = false;
  float_part.x_rounding = float_part.x_tiny = 0;
  pool.run(n, [&](int64_t t, int) {
    const std::span<const double> error = in.a.error.empty() ? in.a.error : in.a.error.subspan(at(t * k), at(k));
    token_norms(scheme, declared, in.a.values.subspan(at(t * k), at(k)), error, carried.data() + t * n_blocks,
                rounded.data() + t * n_blocks);
    if (n_declared == 0) return;
    std::vector<double> none(at(n_blocks));
    token_norms(float_part, declared, std::span(known.values).subspan(at(t * k), at(k)), {}, none.data(),
                rounded.data() + (n + t) * n_blocks);
  });
  carried.insert(carried.end(), known.doubtful.begin(), known.doubtful.end());
  const bool has_sums = format.has_min && !known.sum_offset.empty();
  // |minimum| of 32 elements alike is at most the norm of their magnitudes / sqrt(32).
  for (size_t i = 0; has_sums && i < known.sum_doubtful.size(); ++i)
    rounded[at(n * n_blocks) + i] += known.sum_doubtful[i] / std::sqrt(32.0);
  const WeightNorms norms = weight_norms(w, first, n_columns, has_sums, pool);
  if (has_sums) {
    const std::vector<double> offsets = norm_product(norms.minima, known.sum_offset, n_blocks, pool);
    for (size_t i = 0; i < offsets.size(); ++i) y[at(n * n_columns) + i] += offsets[i];
  }
  Expected e;
  e.bound = norm_product(norms.weights, carried, n_blocks, pool);
  std::vector<double> from_rounding =
      norm_product(format.has_min ? norms.magnitudes : norms.weights, rounded, n_blocks, pool);
  const double u = unit(declared), floor = tiny(declared);
  pool.run(n, [&](int64_t t, int) {
    const size_t begin = at(t * n_columns), end = at((t + 1) * n_columns), further = at(n * n_columns);
    for (size_t i = begin; i < end; ++i) e.bound[i] += from_rounding[i] + u * std::fabs(y[i]) + floor;
    for (size_t i = begin; i < end && n_declared > 0; ++i) {
      const double from_doubt = known.doubtful.empty() ? 0 : e.bound[further + i];
      from_rounding[further + i] += from_doubt + u * std::fabs(y[further + i]) + floor;
    }
  });
  // The rows of y and of from_rounding: as given, as declared, and of y the chain's.
  const auto rows = [&](const std::vector<double>& all, int64_t begin, int64_t count) {
    return std::vector<double>(all.begin() + begin * n_columns, all.begin() + (begin + count) * n_columns);
  };
  e.declared_y = rows(y, n, n_declared);
  e.declared_bound = rows(from_rounding, n, n_declared);
  if (options.chain != nullptr) options.chain->y = rows(y, n + n_declared, n_all - n - n_declared);
  y.resize(at(n * n_columns));
  e.bound.resize(y.size());
  e.y = std::move(y);
  return e;
}

}  // namespace assay::bounds
