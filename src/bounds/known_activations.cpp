// See known_activations.h.
#include "bounds/known_activations.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>

#include "base/index.h"
#include "num/f16.h"
#include "quant/activations.h"

namespace assay::bounds {
namespace {

constexpr float kDoubt = 0x1p-14f;  // of a step: 127 times a few roundings

// Row t as floats; nothing where a value is none.
bool read_row(const Rows& x, int64_t t, std::vector<float>& row) {
  for (int64_t j = 0; j < x.width; ++j) {
    const double value = x.values[at(t * x.width + j)];
    row[at(j)] = static_cast<float>(value);
    if (static_cast<double>(row[at(j)]) != value && !std::isnan(value)) return false;
  }
  return true;
}

KnownActivations our_own(const Rows& x, quant::Activation kind, int bits) {
  std::vector<float> row(at(x.width));
  const int planes = bits == 15 ? 2 : 1;
  std::vector<std::byte> memory(quant::activations_bytes(kind, planes, 1, x.width) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  const quant::Activations out = quant::carve(kind, planes, 1, x.width, aligned);
  KnownActivations known;
  known.values.resize(at(x.n * x.width));
  for (int64_t t = 0; t < x.n; ++t) {
    if (!read_row(x, t, row)) return {};
    quant::quantise_row_ref(row.data(), out, 0);
    for (int64_t j = 0; j < x.width; ++j) {
      const double integer = out.q[j] + (planes == 2 ? out.l[j] / 128.0 : 0.0);
      known.values[at(t * x.width + j)] = static_cast<double>(out.d[j / out.block()]) * integer;
    }
  }
  return known;
}

// Of the element of largest magnitude, with its sign; nothing where one is no number.
std::optional<float> largest_of(std::span<const float> block) {
  float largest = 0;
  for (const float x : block) {
    if (!std::isfinite(x)) return std::nullopt;
    if (std::fabs(x) > std::fabs(largest)) largest = x;
  }
  return largest;
}

struct Block {
  std::span<const float> x;
  std::span<double> values;
  std::span<double> doubtful, sum_offset, sum_doubtful;  // per 32
};

bool is_doubtful(float steps) { return std::fabs(std::fabs(steps - std::floor(steps)) - 0.5f) < kDoubt; }

// False where the scale is none.
bool block_of_32(const Block& block) {
  const std::optional<float> largest = largest_of(block.x);
  if (!largest) return false;
  const float amax = std::fabs(*largest);
  const float d = amax / 127.0f;
  const float inverse = amax != 0 ? 127.0f / amax : 0.0f;
  const auto stored = static_cast<double>(num::half_to_float(num::float_to_half(d)));
  if (!std::isfinite(stored) || !std::isfinite(inverse)) return false;
  float sum = 0;
  double n_doubtful = 0;
  for (size_t j = 0; j < block.x.size(); ++j) {
    const float steps = block.x[j] * inverse, q = std::nearbyint(steps);
    block.values[j] = stored * static_cast<double>(q);
    sum += q;
    n_doubtful += is_doubtful(steps) ? 1 : 0;
  }
  block.doubtful[0] = stored * std::sqrt(n_doubtful);
  const auto stored_sum = static_cast<double>(num::half_to_float(num::float_to_half(d * sum)));
  if (!std::isfinite(stored_sum)) return false;
  block.sum_offset[0] = stored_sum - stored * static_cast<double>(sum);
  // An element in doubt moves both sums by a step, and the stored one is rounded anew, to f16.
  if (n_doubtful > 0) block.sum_doubtful[0] = 0x1p-10 * (std::fabs(stored_sum) + 2 * n_doubtful * stored) + 0x1p-24;
  return true;
}

bool block_of_256(const Block& block) {
  const std::optional<float> largest = largest_of(block.x);
  if (!largest) return false;
  const float inverse = *largest != 0 ? -127.0f / *largest : 0.0f;
  const float d = *largest != 0 ? 1.0f / inverse : 0.0f;
  if (!std::isfinite(inverse) || !std::isfinite(d)) return false;
  for (size_t j = 0; j < block.x.size(); ++j) {
    const float steps = block.x[j] * inverse;
    block.values[j] = static_cast<double>(d) * static_cast<double>(std::min(127.0f, std::nearbyint(steps)));
    double& doubtful = block.doubtful[j / at(kNormBlock)];
    if (is_doubtful(steps)) doubtful = std::hypot(doubtful, static_cast<double>(d));
  }
  return true;
}

bool llama_cpp_block(const quant::Format& format, const Block& block) {
  switch (format.activation) {
    case quant::Activation::a32: return block_of_32(block);
    case quant::Activation::a256: return block_of_256(block);
    case quant::Activation::f32: break;
  }
  for (size_t j = 0; j < block.x.size(); ++j) {
    const bool is_bf16 = format.dtype == tensor::DType::BF16;
    const float x = block.x[j];
    block.values[j] = static_cast<double>(is_bf16 ? num::bf16_to_float(num::float_to_bf16(x))
                                                  : num::half_to_float(num::float_to_half(x)));
  }
  return true;
}

KnownActivations as_llama_cpp(const Rows& x, const quant::Format& format) {
  const int64_t k = x.width, n_blocks = n_norms(k);
  const int64_t step = format.activation == quant::Activation::a256 ? 256 : kNormBlock;
  std::vector<float> row(at(k));
  const std::vector<double> zeros(at(x.n * n_blocks));
  const bool has_sums = format.activation == quant::Activation::a32;
  const std::vector<double> none;
  KnownActivations known{std::vector<double>(at(x.n * k)), zeros, has_sums ? zeros : none, has_sums ? zeros : none};
  for (int64_t t = 0; t < x.n; ++t) {
    if (!read_row(x, t, row)) return {};
    for (int64_t j = 0; j < k; j += step) {
      const int64_t n = std::min(step, k - j);
      const size_t first = at(t * n_blocks + j / kNormBlock), n_parts = at(n_norms(n));
      const auto part = [&](std::vector<double>& all) {
        return all.empty() ? std::span<double>() : std::span(all).subspan(first, n_parts);
      };
      const Block block{std::span(row).subspan(at(j), at(n)), std::span(known.values).subspan(at(t * k + j), at(n)),
                        part(known.doubtful), part(known.sum_offset), part(known.sum_doubtful)};
      if (!llama_cpp_block(format, block)) return {};
    }
  }
  return known;
}

}  // namespace

KnownActivations known_activations(const Rows& x, const quant::Format& format, const Declared& declared) {
  if (!x.error.empty() || declared.activation_block != 0) return {};
  const bool is_float = format.activation == quant::Activation::f32;
  if (declared.own_sums)
    return is_float || declared.activation_bits == 0 ? KnownActivations{}
                                                     : our_own(x, format.activation, declared.activation_bits);
  if (!declared.as_llama_cpp || format.dtype == tensor::DType::F32) return {};
  const bool rounds = is_float ? declared.activations_f16 : declared.activation_bits == 8;
  return rounds ? as_llama_cpp(x, format) : KnownActivations{};
}

}  // namespace assay::bounds
