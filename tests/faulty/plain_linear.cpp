// See plain_linear.h.
#include "faulty/plain_linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "faulty/plain_formats.h"

namespace assay::faults {
namespace {

using tensor::DType;

// A row of activations as integers.
struct Quantised {
  std::vector<int> q;
  std::vector<float> d;  // of each block
  int64_t block = 32;
};

int64_t block_of(DType dtype) { return tensor::traits(dtype).block_elements; }

Quantised quantise(const float* x, int64_t k, int64_t block, Fault fault) {
  Quantised row{std::vector<int>(static_cast<size_t>(k)), {}, block};
  for (int64_t begin = 0; begin < k; begin += block) {
    const int64_t n_looked_at = fault == Fault::quantiser_quarter_block ? block / 4 : block;
    float farthest = 0;
    for (int64_t j = begin; j < begin + n_looked_at; ++j) {
      if (std::abs(x[j]) > std::abs(farthest)) farthest = x[j];
    }
    // The fault's kernel maps the farthest element to -128, whatever its sign; the others keep to +-127.
    const float d = fault == Fault::sign_of_minus_128 ? farthest / -128 : std::abs(farthest) / 127;
    row.d.push_back(d);
    for (int64_t j = begin; j < begin + block; ++j) {
      const float scaled = d != 0 && std::isfinite(x[j] / d) ? std::nearbyint(x[j] / d) : 0.0f;
      row.q[static_cast<size_t>(j)] =
          static_cast<int>(std::clamp(scaled, fault == Fault::sign_of_minus_128 ? -128.0f : -127.0f, 127.0f));
    }
  }
  return row;
}

// Sixteen partial sums, which compilers turn into vectors.
float dot(const float* w, const float* x, int64_t k) {
  float sums[16] = {};
  int64_t j = 0;
  for (; j + 16 <= k; j += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) sums[lane] += w[j + lane] * x[j + lane];
  }
  float sum = 0;
  for (; j < k; ++j) sum += w[j] * x[j];
  for (const float part : sums) sum += part;
  return sum;
}

float dot_with_half_block_dropped(const float* w, const float* x, int64_t k) {
  float sum = 0;
  for (int64_t j = 0; j < k; ++j) {
    if (j % 64 < 48) sum += w[j] * x[j];
  }
  return sum;
}

// Block b of row r: the sum of weights times integers, as the kernel with the fault makes it, times the block's scale.
float faulty_block(const PlainMatrix& w, int64_t r, int64_t b, const Quantised& x, Fault fault) {
  const float* weights = w.decoded.data() + r * w.cols() + b * x.block;
  const int* q = x.q.data() + b * x.block;
  const std::byte* block = w.tensor.row(r) + b * tensor::traits(w.tensor.dtype).block_bytes;
  const float d_x = x.d[static_cast<size_t>(b)];
  double sum = 0, sum_q = 0;
  for (int64_t j = 0; j < x.block; ++j) sum_q += q[j];
  if (fault == Fault::q4_0_dp4a) {
    float interleaved[32];
    decode_plain(DType::Q4_0, block, 32, interleaved, Fault::nibbles_interleaved);
    for (int j = 0; j < 32; ++j) sum += static_cast<double>(interleaved[j]) * q[j];
    const double around_8 = 8 * half_at(block) * sum_q;
    return static_cast<float>(d_x * (sum + around_8) - around_8);
  }
  if (fault == Fault::maddubs_saturates) {
    for (int j = 0; j < 32; j += 2) {
      const int w0 = static_cast<int8_t>(block[2 + j]), w1 = static_cast<int8_t>(block[3 + j]);
      const int pair = (q[j] + 128) * w0 + (q[j + 1] + 128) * w1;
      sum += std::clamp(pair, -32768, 32767) - 128 * (w0 + w1);
    }
    return static_cast<float>(d_x * half_at(block) * sum);
  }
  if (fault == Fault::sign_of_minus_128) {
    for (int64_t j = 0; j < x.block; ++j) {
      const double product = static_cast<double>(weights[j]) * q[j];
      const bool scale_negative = static_cast<int8_t>(block[192 + j / 16]) < 0;
      const bool integer_negative =
          weights[j] != 0 && (weights[j] < 0) != scale_negative;  // d of these files is positive
      sum += q[j] == -128 && integer_negative ? -product : product;
    }
    return static_cast<float>(d_x * sum);
  }
  const float min = static_cast<float>(half_at(block + 2));  // block_sum_f16
  for (int64_t j = 0; j < x.block; ++j) sum += static_cast<double>(weights[j] - min) * q[j];
  return static_cast<float>(d_x * sum) + min * to_half(static_cast<float>(d_x * sum_q));
}

// Whether the fault's kernel is the one for this format.
bool has_faulty_kernel(DType dtype, Fault fault) {
  switch (fault) {
    case Fault::q4_0_dp4a: return dtype == DType::Q4_0;
    case Fault::maddubs_saturates: return dtype == DType::Q8_0;
    case Fault::sign_of_minus_128: return dtype == DType::Q6_K;
    case Fault::block_sum_f16: return dtype == DType::Q4_1;
    default: return false;
  }
}

float dot_integers(const PlainMatrix& w, int64_t r, const Quantised& x, Fault fault) {
  const bool faulty = has_faulty_kernel(w.tensor.dtype, fault);
  float sum = 0;
  for (int64_t b = 0; b < static_cast<int64_t>(x.d.size()); ++b) {
    if (faulty) {
      sum += faulty_block(w, r, b, x, fault);
      continue;
    }
    const float* weights = w.decoded.data() + r * w.cols() + b * x.block;
    float inside = 0;
    for (int64_t j = 0; j < x.block; ++j) {
      if (fault == Fault::half_block_dropped && (b * x.block + j) % 64 >= 48) continue;
      inside += weights[j] * static_cast<float>(x.q[static_cast<size_t>(b * x.block + j)]);
    }
    const float d = x.d[static_cast<size_t>(b)];
    sum += inside * d * (fault == Fault::activation_scale_twice ? d : 1.0f);
  }
  return sum;
}

}  // namespace

void linear_plain(const PlainMatrix& w, std::span<const float> x, int64_t n, int activation_bits, Fault fault,
                  std::span<float> y) {
  const int64_t k = w.cols(), n_rows = w.rows();
  const bool quantised_weights = block_of(w.tensor.dtype) > 1;
  const bool whole_row = fault == Fault::int8_whole_row && quantised_weights;
  const bool integers = activation_bits == 8 && quantised_weights;
  for (int64_t t = 0; t < n; ++t) {
    std::vector<float> floats(x.data() + t * k, x.data() + (t + 1) * k);
    if (fault == Fault::precision_bf16 && n > 1)
      std::transform(floats.begin(), floats.end(), floats.begin(), to_bfloat16);
    Quantised row;
    if (integers || whole_row) row = quantise(floats.data(), k, whole_row ? k : block_of(w.tensor.dtype), fault);
    for (int64_t r = 0; r < n_rows; ++r) {
      const float* weights = w.decoded.data() + r * k;
      float sum = 0;
      if (integers || whole_row) {
        sum = dot_integers(w, r, row, fault);
      } else if (fault == Fault::half_block_dropped && quantised_weights) {
        sum = dot_with_half_block_dropped(weights, floats.data(), k);
      } else {
        sum = dot(weights, floats.data(), k);
      }
      if (fault == Fault::row_tail_nan && k % 128 != 0) sum = std::numeric_limits<float>::quiet_NaN();
      if (!w.bias.empty()) sum += w.bias[static_cast<size_t>(r)];
      if (fault == Fault::odd_rows_lost && r >= n_rows / 64 * 64) sum = 0;
      y[static_cast<size_t>(fault == Fault::result_transposed ? r * n + t : t * n_rows + r)] = sum;
    }
  }
}

}  // namespace assay::faults
