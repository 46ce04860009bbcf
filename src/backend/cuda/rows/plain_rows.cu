// See plain_rows.h. Of most ops a thread makes one element of y; of norms and routes a warp a row.
#include "backend/cuda/rows/plain_rows.h"
#include "backend/cuda/rows/route.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/activations.h"
#include "num/lanes.h"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }
__device__ int64_t thread_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

template <class Element>
__global__ void each_kernel(Element element, int64_t n, float* y) {
  let_next_start();
  const int64_t i = thread_index();
  wait_for_previous();
  if (i < n) y[i] = element(i);
}
template <class Element>
void each(const Element& element, int64_t n, float* y, const Queue& queue) {
  if (n == 0) return;
  take_decode_cut(each_kernel<Element>);
  launch(queue, each_kernel<Element>, dim3(blocks_for(n)), kThreads, 0, element, n, y);
}

struct Scaled {
  const float* x;
  float factor;
  __device__ float operator()(int64_t i) const { return x[i] * factor; }
};
struct Clamped {
  const float* x;
  float most;
  __device__ float operator()(int64_t i) const { return x[i] > most ? most : x[i] < -most ? -most : x[i]; }
};
struct Capped {
  const float* x;
  float cap;
  __device__ float operator()(int64_t i) const { return num::softcap(x[i], cap); }
};
struct Activated {
  const float* x;
  ops::ActivationFunction activation;
  __device__ float operator()(int64_t i) const { return ops::activate(activation, x[i]); }
};
struct WithColumns {
  const float *x, *w;
  int64_t width;
  __device__ float operator()(int64_t i) const { return x[i] + w[i % width]; }
};
struct TimesColumns {
  const float *x, *w;
  int64_t n_factors, run_width;
  __device__ float operator()(int64_t i) const { return x[i] * w[i / run_width % n_factors]; }
};
struct AnyGate {
  const float *gate, *up;
  ops::ActivationFunction activation;
  int64_t run_width;
  __device__ float operator()(int64_t i) const { return ops::activate(activation, gate[i / run_width]) * up[i]; }
};
struct ClampGate {
  const float *gate, *up;
  float alpha, limit;
  __device__ float operator()(int64_t i) const {
    const float g = limit < gate[i] ? limit : gate[i];
    const float below = limit < up[i] ? limit : up[i], u = -limit > below ? -limit : below;
    return (g * num::sigmoid(alpha * g)) * (u + 1.0f);
  }
};
struct ExpertScaled {
  const float *x, *routes;
  int64_t n_used, d;
  __device__ float operator()(int64_t i) const {
    const int64_t pair = i / d, token = pair / n_used;
    return routes[token * 2 * n_used + pair % n_used] * x[token * d + i % d];
  }
};

__device__ float sum_of(float a, float b) { return a + b; }
__device__ float4 sum_of(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ float times(float w, float x) { return w * x; }
__device__ float4 times(float w, float4 x) { return {w * x.x, w * x.y, w * x.z, w * x.w}; }
__device__ float fma_of(float w, float x, float sum) { return num::fma(w, x, sum); }
__device__ float4 fma_of(float w, float4 x, float4 sum) {
  return {num::fma(w, x.x, sum.x), num::fma(w, x.y, sum.y), num::fma(w, x.z, sum.z), num::fma(w, x.w, sum.w)};
}

// ops/linear/expert_sum.h, of a column or of four: `from` is the one of rank 0, those of the others lie `width` further
// each; weights null: plain sums.
template <class Columns, class Index>
__device__ Columns sum_of_ranks(const Columns* from, uint64_t width, const float* weights, Index n_used) {
  Columns sum = weights == nullptr ? from[0] : times(weights[0], from[0]);
#pragma unroll 8
  for (Index rank = 1; rank < n_used; ++rank) {
    const Columns x = from[rank * width];
    sum = weights == nullptr ? sum_of(sum, x) : fma_of(weights[rank], x, sum);
  }
  return sum;
}

struct ExpertsSummed {
  const float *x, *routes;
  int64_t n_used, d;
  __device__ float operator()(int64_t i) const {
    const int64_t token = i / d;
    return sum_of_ranks(x + token * n_used * d + i % d, static_cast<uint64_t>(d),
                        routes == nullptr ? nullptr : routes + token * 2 * n_used, n_used);
  }
};

// The same, four neighbouring columns a thread.
__global__ void __launch_bounds__(kThreads)
    experts_summed_kernel(const __grid_constant__ ExpertsSummed task, uint32_t n_fours, float4* y) {
  let_next_start();
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x, width = static_cast<uint32_t>(task.d) / 4,
                 n_used = static_cast<uint32_t>(task.n_used);
  wait_for_previous();
  if (i >= n_fours) return;
  const uint32_t token = i / width;
  const float4* from = reinterpret_cast<const float4*>(task.x) + uint64_t{token} * n_used * width + i % width;
  const float* weights = task.routes == nullptr ? nullptr : task.routes + uint64_t{token} * 2 * n_used;
  y[i] = sum_of_ranks(from, width, weights, n_used);
}

__global__ void copy_kernel(CopyRuns c, int64_t n_runs) {
  const int64_t i = thread_index(), run = i / c.width, j = i % c.width;
  if (run < n_runs) c.y[run * c.y_stride + c.y_first + j] = c.x[run / c.x_repeats * c.x_stride + c.x_first + j];
}

__global__ void layer_norm_kernel(LayerNormTask task) {
  const int64_t run = thread_index() / 32;
  const int lane = threadIdx.x % 32;
  if (run >= task.n_runs) return;
  const float* x = task.x + run * task.d;
  float* y = task.y + run * task.d;
  const int64_t own = run % task.n_weights * task.d;
  float sum = 0.0f, squares = 0.0f;
  for (int64_t j = lane; j < task.d; j += 32) sum = sum + x[j];
  const float mean = __shfl_sync(kWholeWarp, fold_lanes(sum), 0) / static_cast<float>(task.d);
  for (int64_t j = lane; j < task.d; j += 32) squares = num::fma(x[j] - mean, x[j] - mean, squares);
  const float r = 1.0f / sqrtf(__shfl_sync(kWholeWarp, fold_lanes(squares), 0) / static_cast<float>(task.d) + task.eps);
  for (int64_t j = lane; j < task.d; j += 32) {
    float value = (x[j] - mean) * r;
    if (task.w != nullptr) value = value * task.w[own + j];
    y[j] = task.bias == nullptr ? value : value + task.bias[own + j];
  }
}

__global__ void l2_norm_kernel(const float* x, float eps, int64_t d, int64_t n_runs, float* y) {
  const int64_t run = thread_index() / 32;
  const int lane = threadIdx.x % 32;
  if (run >= n_runs) return;
  x += run * d;
  y += run * d;
  float sum = 0.0f;
  for (int64_t j = lane; j < d; j += 32) sum = num::fma(x[j], x[j], sum);
  const float r = 1.0f / sqrtf(__shfl_sync(kWholeWarp, fold_lanes(sum), 0) + eps);
  for (int64_t j = lane; j < d; j += 32) y[j] = x[j] * r;
}

template <bool kIsShort>
__global__ void __launch_bounds__(32) route_kernel(RouteTask task) {
  extern __shared__ float memory[];
  let_next_start();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  route_by_warp<kIsShort>(task, task.gating, task.logits + row * task.n_experts, task.y + row * 2 * task.n_used,
                          memory);
}

}  // namespace

void scale(const float* x, float factor, int64_t n, float* y, const Queue& queue) {
  each(Scaled{x, factor}, n, y, queue);
}
void clamp(const float* x, float limit, int64_t n, float* y, const Queue& queue) {
  each(Clamped{x, limit}, n, y, queue);
}
void softcap(const float* x, float cap, int64_t n, float* y, const Queue& queue) { each(Capped{x, cap}, n, y, queue); }
void activate(const float* x, ops::ActivationFunction activation, int64_t n, float* y, const Queue& queue) {
  each(Activated{x, activation}, n, y, queue);
}
void add_columns(const float* x, const float* w, int64_t width, int64_t n, float* y, const Queue& queue) {
  each(WithColumns{x, w, width}, n, y, queue);
}
void scale_columns(const float* x, const float* w, int64_t n_factors, int64_t run_width, int64_t n, float* y,
                   const Queue& queue) {
  each(TimesColumns{x, w, n_factors, run_width}, n, y, queue);
}
void gate_any(const float* gate, const float* up, ops::ActivationFunction activation, int64_t run_width, int64_t n,
              float* y, const Queue& queue) {
  each(AnyGate{gate, up, activation, run_width}, n, y, queue);
}
void clamped_gate(const float* gate, const float* up, float alpha, float limit, int64_t n, float* y,
                  const Queue& queue) {
  each(ClampGate{gate, up, alpha, limit}, n, y, queue);
}
void expert_scale(const float* x, const float* routes, int64_t n_used, int64_t d, int64_t n, float* y,
                  const Queue& queue) {
  each(ExpertScaled{x, routes, n_used, d}, n, y, queue);
}
void expert_sum(const float* x, const float* routes, int64_t n_used, int64_t d, int64_t n, float* y,
                const Queue& queue) {
  constexpr int64_t kManyElements = 1 << 16;  // fewer are sooner done with more threads
  const ExpertsSummed task{x, routes, n_used, d};
  if (n < kManyElements || d % 4 != 0 || n > INT32_MAX) return each(task, n, y, queue);
  launch(queue, experts_summed_kernel, dim3(blocks_for(n / 4)), kThreads, 0, task, static_cast<uint32_t>(n / 4),
         reinterpret_cast<float4*>(y));
}

void copy_runs(const CopyRuns& copy, int64_t n_runs, const Queue& queue) {
  if (n_runs * copy.width > 0)
    copy_kernel<<<blocks_for(n_runs * copy.width), kThreads, 0, queue.stream>>>(copy, n_runs);
}

void layer_norm(const LayerNormTask& task, const Queue& queue) {
  if (task.n_runs > 0) layer_norm_kernel<<<blocks_for(task.n_runs * 32), kThreads, 0, queue.stream>>>(task);
}

void l2_norm(const float* x, float eps, int64_t d, int64_t n_runs, float* y, const Queue& queue) {
  if (n_runs > 0) l2_norm_kernel<<<blocks_for(n_runs * 32), kThreads, 0, queue.stream>>>(x, eps, d, n_runs, y);
}

void route(const RouteTask& task, const Queue& queue) {
  if (task.n_rows == 0) return;
  constexpr size_t kBytesUnasked = 48 * 1024;
  const size_t bytes = route_shared_bytes(task);
  static_assert(5 * ops::kExpertsMax * sizeof(float) <= 96 * 1024);  // devices have that much
  const auto kernel = task.n_experts <= 32 * kOwnMax ? route_kernel<true> : route_kernel<false>;
  if (bytes > kBytesUnasked) require(allow_shared(kernel, bytes), "shared memory");
  take_decode_cut(kernel);
  launch(queue, kernel, dim3(static_cast<unsigned>(task.n_rows)), 32, bytes, task);
}

}  // namespace assay::backend::cuda
