// A matrix product of random weights and activations for the micro-benchmarks, with the memory that it works on.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cpu/linear.h"
#include "support/random_weights.h"

namespace assay::bench {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, Free>;
inline Bytes aligned_bytes(size_t n) { return Bytes(static_cast<std::byte*>(std::aligned_alloc(64, (n + 127) / 64 * 64))); }

struct LinearSetting {
  const quant::Format* format;
  backend::cpu::KernelSet set;
  int64_t tokens;
  int planes;  // 0: mode f32
  int64_t k, rows;
};

struct LinearCase {
  explicit LinearCase(const LinearSetting& s)
      : x(test::random_activations(s.tokens * s.k, 2)), y(static_cast<size_t>(s.tokens * s.rows)) {
    const tensor::DTypeTraits& traits = tensor::traits(s.format->dtype);
    task.format = s.format;
    task.k = s.k;
    task.row_bytes = s.k / traits.block_elements * traits.block_bytes;
    const std::vector<std::byte> row = test::random_weights(*s.format, s.k, 1);
    weights = aligned_bytes(static_cast<size_t>(task.row_bytes * s.rows));
    for (int64_t r = 0; r < s.rows; ++r) std::memcpy(weights.get() + r * task.row_bytes, row.data(), row.size());
    task.weights = weights.get();
    task.as_f32 = s.planes == 0;
    task.n_tokens = s.tokens;
    task.x_f32 = tensor::ConstMat(x.data(), s.tokens, s.k, s.k);
    if (s.planes > 0) {
      activations = aligned_bytes(quant::activations_bytes(s.format->activation, s.planes, s.tokens, s.k));
      task.x = quant::carve(s.format->activation, s.planes, s.tokens, s.k, activations.get());
      backend::cpu::quantise_rows(s.set, task.x_f32, task.x, 0, s.tokens);
    }
    task.y = tensor::Mat{y.data(), s.tokens, s.rows, s.rows};
    scratch = aligned_bytes(backend::cpu::linear_scratch_bytes(s.set, task));
  }

  std::vector<float> x, y;
  Bytes weights, activations, scratch;
  backend::cpu::LinearTask task;
};

}  // namespace assay::bench
