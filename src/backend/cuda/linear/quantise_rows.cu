// Integers of rows that are read, or made by a gate (fused.h, row_kernels.h): a lane takes 8 neighbouring elements.
#include "backend/cuda/linear/quantise.cuh"
#include "backend/cuda/rows/fused.h"
#include "backend/cuda/rows/usual_gate.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "num/math.h"
#include "ops/rows/activation.h"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 256;

struct Plain {
  const float* x;
  __device__ void make(int64_t at, float (&y)[8]) const { read_8(x + at, y); }
};

template <ops::ActivationFunction activation>
struct Gated {
  const float *gate, *up;
  __device__ static float exponent(float x) {
    if constexpr (activation == ops::ActivationFunction::silu) return -x;
    static_assert(activation == ops::ActivationFunction::silu || activation == ops::ActivationFunction::gelu_tanh);
    return -num::gelu_twice_u(x);
  }
  __device__ void make(int64_t at, float (&y)[8]) const {
    float x[8], factor[8], e[8];
    read_8(gate + at, x);
    read_8(up + at, factor);
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      e[i] = exponent(x[i]);
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(largest), "f"(fabsf(e[i])));
    }
    if (largest <= num::kExpNearMax) {
#pragma unroll
      for (int i = 0; i < 8; ++i) e[i] = num::exp_near(e[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) e[i] = num::exp(e[i]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = (x[i] / (1.0f + e[i])) * factor[i];
  }
};

template <class Source, int kBlock>
__global__ void quantise_rows_kernel(Source source, int64_t n, float* y, quant::Activations out) {
  let_next_start();
  const int64_t at = 8 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
  wait_for_previous();
  float x[8] = {};
  if (at < n) {
    source.make(at, x);
    if (y != nullptr) write_8(y + at, x);
  }
  quantise_8<kBlock>(x, at < n, out, at);
}

template <class Source>
void start(const Source& source, int64_t n_rows, float* y, const quant::Activations& out, const Queue& queue) {
  const int64_t n = n_rows * out.k;
  if (n == 0) return;
  const auto kernel =
      out.kind == quant::Activation::a256 ? quantise_rows_kernel<Source, 256> : quantise_rows_kernel<Source, 32>;
  take_decode_cut(kernel);
  launch(queue, kernel, dim3(static_cast<unsigned>((n + 8 * kThreads - 1) / (8 * kThreads))), kThreads, 0, source, n, y,
         out);
}

}  // namespace

void quantise_rows(const float* x, int64_t n_rows, const quant::Activations& out, const Queue& queue) {
  start(Plain{x}, n_rows, nullptr, out, queue);
}

void gate_rows(const float* gate, const float* up, ops::ActivationFunction activation, int64_t n_rows, float* y,
               const quant::Activations& out, const Queue& queue) {
  with_usual(activation, [&](auto function) {
    start(Gated<decltype(function)::value>{gate, up}, n_rows, y, out, queue);
  });
}

}  // namespace assay::backend::cuda
