// A matrix product of random weights and activations for the micro-benchmarks, with the memory that it works on.
#pragma once

#include <cstring>
#include <vector>

#include "backend/cpu/linear/linear.h"
#include "base/aligned_buffer.h"
#include "support/random_weights.h"

namespace assay::bench {

struct LinearSetting {
  const quant::Format* format;
  Kernels set;
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
    weights = {static_cast<uint64_t>(task.row_bytes * s.rows), "weights"};
    for (int64_t r = 0; r < s.rows; ++r) std::memcpy(weights.data() + r * task.row_bytes, row.data(), row.size());
    task.weights = weights.data();
    task.as_f32 = s.planes == 0;
    task.n_tokens = s.tokens;
    task.x_f32 = tensor::ConstMat(x.data(), s.tokens, s.k, s.k);
    if (s.planes > 0) {
      activations = {quant::activations_bytes(s.format->activation, s.planes, s.tokens, s.k), "activations"};
      task.x = quant::carve(s.format->activation, s.planes, s.tokens, s.k, activations.data());
      backend::cpu::quantise_rows(s.set, task.x_f32, task.x, 0, s.tokens);
    }
    task.y = tensor::Mat{y.data(), s.tokens, s.rows, s.rows};
    scratch = {backend::cpu::linear_scratch_bytes(s.set, task), "scratch"};
  }

  std::vector<float> x, y;
  base::AlignedBuffer weights, activations, scratch;
  backend::cpu::LinearTask task;
};

}  // namespace assay::bench
