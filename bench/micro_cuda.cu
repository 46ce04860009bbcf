// Speed of kernels on one GPU: attention of one token over long contexts, and what the orders of the contract cost. For
// the latter each product and attention stands beside a variant that no promise binds: sums in any order, cut as is
// fastest for the shape. These variants are here alone.
//   micro_cuda
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "backend/cuda/attention/decode_attention.h"
#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/decode/decode.h"
#include "backend/cuda/decode/fast_decode.h"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"

namespace assay::backend::cuda {

bool tiles_in_one_chain(std::span<const FloatRows> runs, int64_t cols, const void* halves, int64_t n_tokens,
                        const Hopper& hopper, const Queue& queue);

}  // namespace assay::backend::cuda

namespace {

using namespace assay;
using namespace assay::backend::cuda;
using ops::CacheType;

constexpr int kRounds = 20;

// Microseconds of one call, of kRounds queued one after the other as decode queues them; the best of three.
template <class Run>
double time_of(const Stream& stream, Run run) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "timing");
  check(cudaEventCreate(&end), "timing");
  float best = 1e30f;
  for (int i = 0; i < 4; ++i) {
    check(cudaEventRecord(begin, stream.get()), "timing");
    for (int round = 0; round < kRounds; ++round) run(round);
    check(cudaEventRecord(end, stream.get()), "timing");
    stream.wait();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "timing");
    if (i > 0) best = std::min(best, ms);
  }
  check(cudaGetLastError(), "timing");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(best) * 1000 / kRounds;
}

template <class T>
void send(const DeviceBuffer& to, const std::vector<T>& values) {
  check(cudaMemcpy(to.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "sending");
}
// Small numbers of both signs, as halves or floats.
__global__ void fill_kernel(__half* halves, float* floats, int64_t n) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) {
    const auto bits = static_cast<uint32_t>(i * 2654435761u);
    const float x = (static_cast<float>(bits >> 16) - 32768.0f) * 1e-6f;
    if (halves != nullptr) halves[i] = __float2half_rn(x);
    if (floats != nullptr) floats[i] = x;
  }
}

// --- attention of one token

struct Shape {
  const char* name;
  int64_t head_dim, n_heads, n_kv_heads;
};

void time_attention(const Shape& shape, CacheType type, int64_t depth, const Queue& queue, const Stream& stream) {
  ops::ExecutorOptions options;
  options.n_ctx = depth;
  options.cache_k = options.cache_v = type;
  const ops::CacheLayer layer{shape.n_kv_heads, shape.head_dim, 0};
  const int n_layers = static_cast<int>(std::max<int64_t>(
      1, (int64_t{96} << 20) / (depth * shape.n_kv_heads * shape.head_dim * 4)));  // beyond the cache of the device
  const std::vector<ops::CacheLayer> layers(static_cast<size_t>(n_layers), layer);
  const KvCache cache(layers, options);
  check(cudaMemset(cache.layer(0).k, 0, cache.bytes()), "clearing");
  const int64_t q_width = shape.n_heads * shape.head_dim,
                n_segments = (depth + ops::kAttentionSegment - 1) / ops::kAttentionSegment;
  const DeviceBuffer rows(static_cast<size_t>(3 * q_width) * 4, "rows"), y(static_cast<size_t>(q_width) * 4, "rows"),
      position(4, "position"), sequence(4, "sequence"), arrived(static_cast<size_t>(shape.n_heads) * 4, "counters"),
      tile(sizeof(TokenTile), "tile"),
      partials(static_cast<size_t>(shape.n_heads * n_segments * (shape.head_dim + 2)) * 4, "partials");
  fill_kernel<<<64, 256>>>(nullptr, rows.as<float>(), 3 * q_width);
  check(cudaMemset(arrived.data(), 0, arrived.size()), "clearing");
  send(position, std::vector<int32_t>{static_cast<int32_t>(depth - 1)});
  send(sequence, std::vector<int32_t>{0});
  send(tile, std::vector<TokenTile>{{0, 1, 0, static_cast<int32_t>(depth - 1)}});
  HeadsTask heads;
  heads.q = rows.as<float>();
  heads.k = heads.q + q_width;
  heads.v = heads.k + q_width;
  heads.n_tokens = 1;
  heads.n_heads = shape.n_heads;
  heads.rope = {shape.n_heads, shape.head_dim, 0, false};
  heads.table = heads.q;
  heads.positions = position.as<int32_t>();
  heads.sequences = sequence.as<int32_t>();
  DecodeAttention exact;
  exact.y = y.as<float>();
  exact.scale = 0.1f;
  exact.n_segments = n_segments;
  exact.partials = partials.as<float>();
  exact.arrived = arrived.as<uint32_t>();
  AttentionTask fast;
  fast.y = exact.y;
  fast.q = heads.q;
  fast.n_heads = shape.n_heads;
  fast.scale = exact.scale;
  fast.tiles = tile.as<TokenTile>();
  fast.n_tiles = 1;
  fast.n_segments = n_segments;
  fast.partials = exact.partials;
  const double us = time_of(stream, [&](int round) {
    exact.heads = heads;
    exact.heads.cache = cache.layer(round % n_layers);
    decode_attention(exact, queue);
  });
  double fast_us = 0;
  if (type == CacheType::f16) {
    fast_us = time_of(stream, [&](int round) {
      HeadsTask now = heads;
      fast.cache = now.cache = cache.layer(round % n_layers);
      fast_decode_attention(fast, now, queue);
      if (n_segments > 1) attention_merge(fast, queue);
    });
  }
  const double bytes = static_cast<double>(cache.bytes() / static_cast<size_t>(n_layers));
  std::printf("%-10s %s %7ld: exact %8.1f us %5.2f TB/s", shape.name, type == CacheType::f16 ? "f16 " : "q8_0",
              static_cast<long>(depth), us, bytes / us * 1e-6);
  fast_us > 0 ? std::printf("   fast %8.1f us %5.2f TB/s\n", fast_us, bytes / fast_us * 1e-6) : std::printf("\n");
}

// --- products of one token with F16 weights

// A warp has kRows rows and 1 / n_parts of their elements, summed in any order; parts meet by atomic additions.
template <int kRows, int kAhead>
__global__ void __launch_bounds__(256)
    free_product_kernel(const __half* w, const float* x, int n_rows, int cols, int n_parts, float* y) {
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(gridDim.x) * 8;
  const int per_part = cols / n_parts;
  bool waited = false;
  for (int item = static_cast<int>(blockIdx.x) * 8 + static_cast<int>(threadIdx.x) / 32;
       item < (n_rows / kRows) * n_parts; item += warps) {
    const int row = item / n_parts * kRows, begin = item % n_parts * per_part;
    float sum[kRows] = {};
    for (int at = begin + 8 * lane; at < begin + per_part; at += 256 * kAhead) {
      uint4 piece[kRows][kAhead];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const int j = at + 256 * i;
          piece[r][i] =
              j < begin + per_part ? __ldcs(reinterpret_cast<const uint4*>(w + int64_t{row + r} * cols + j)) : uint4{};
        }
      }
      if (!waited) wait_for_previous(), waited = true;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int j = min(at + 256 * i, cols - 8);
        const float4 a = *reinterpret_cast<const float4*>(x + j), b = *reinterpret_cast<const float4*>(x + j + 4);
        const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const auto* h = reinterpret_cast<const __half2*>(&piece[r][i]);
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float2 f = __half22float2(h[k]);
            sum[r] = __fmaf_rn(f.x, v[2 * k], sum[r]);
            sum[r] = __fmaf_rn(f.y, v[2 * k + 1], sum[r]);
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float all = fold_lanes(sum[r]);
      if (lane == 0)
        n_parts == 1 ? static_cast<void>(y[row + r] = all) : static_cast<void>(atomicAdd(y + row + r, all));
    }
  }
  if (!waited) wait_for_previous();
}

struct Product {
  const char* name;
  int64_t rows, cols;
};

void time_product(const Product& p, const Queue& queue, const Stream& stream) {
  const int64_t bytes = p.rows * p.cols * 2;
  const int n_copies =
      static_cast<int>(std::max<int64_t>(2, (int64_t{200} << 20) / bytes + 1));  // beyond the cache of the device
  const DeviceBuffer w(static_cast<size_t>(n_copies * bytes), "weights"), x(static_cast<size_t>(p.cols) * 4, "a row"),
      y(static_cast<size_t>(p.rows) * 4, "sums");
  fill_kernel<<<1024, 256>>>(w.as<__half>(), nullptr, n_copies * p.rows * p.cols);
  fill_kernel<<<64, 256>>>(nullptr, x.as<float>(), p.cols);
  check(cudaDeviceSynchronize(), "filling");
  DecodeSource source;
  source.a = x.as<float>();
  source.d = static_cast<int32_t>(p.cols);
  const auto run_ours = [&](int round, bool fast) {
    Matrix m{tensor::DType::F16, p.rows, p.cols, {}};
    m.parts.base[0] = w.as<uint8_t>() + round % n_copies * bytes;
    m.parts.n = 1;
    m.parts.bytes[0] = 2;
    const LinearTask task{&m, nullptr, y.as<float>()};
    fast ? fast_decode_linears(source, std::span(&task, 1), {}, queue)
         : decode_linears(source, std::span(&task, 1), {}, quant::Activation::f32, 1, queue);
  };
  const double exact = time_of(stream, [&](int round) { run_ours(round, false); }),
               fast = time_of(stream, [&](int round) { run_ours(round, true); });
  double best = 1e30;
  std::string how;
  const auto try_free = [&]<int kRows, int kAhead>() {
    for (const int n_parts : {1, 2, 4}) {
      for (const int per_processor : {2, 4, 8}) {
        if (p.cols % (8 * n_parts) != 0) continue;
        const double us = time_of(stream, [&](int round) {
          launch(queue, free_product_kernel<kRows, kAhead>,
                 dim3(static_cast<unsigned>(per_processor * queue.n_multiprocessors)), 256, 0,
                 reinterpret_cast<const __half*>(w.as<uint8_t>() + round % n_copies * bytes), x.as<float>(),
                 static_cast<int>(p.rows), static_cast<int>(p.cols), n_parts, y.as<float>());
        });
        if (us < best)
          best = us, how = std::to_string(kRows) + " rows, " + std::to_string(n_parts) + " parts, " +
                           std::to_string(per_processor) + " blocks";
      }
    }
  };
  try_free.template operator()<1, 4>();
  try_free.template operator()<1, 8>();
  try_free.template operator()<2, 4>();
  try_free.template operator()<4, 2>();
  const auto rate = [&](double us) { return static_cast<double>(bytes) / us * 1e-6; };
  std::printf(
      "%-10s %6ld x %5ld: exact %6.1f us %4.2f TB/s, fast %6.1f us %4.2f TB/s, any order %6.1f us %4.2f TB/s (%s): "
      "fast costs %+.1f %%\n",
      p.name, static_cast<long>(p.rows), static_cast<long>(p.cols), exact, rate(exact), fast, rate(fast), best,
      rate(best), how.c_str(), (fast / best - 1) * 100);
}

// --- products of 2,048 tokens with F16 weights

void time_tiles(const Product& p, const Hopper& hopper, const Queue& queue, const Stream& stream) {
  constexpr int64_t kTokens = 2048;
  const DeviceBuffer w(static_cast<size_t>(2 * p.rows * p.cols), "weights"),
      x(static_cast<size_t>(2 * kTokens * p.cols), "rows"), y(static_cast<size_t>(4 * kTokens * p.rows), "sums");
  fill_kernel<<<1024, 256>>>(w.as<__half>(), nullptr, p.rows * p.cols);
  fill_kernel<<<1024, 256>>>(x.as<__half>(), nullptr, kTokens * p.cols);
  check(cudaDeviceSynchronize(), "filling");
  const FloatRows rows{tensor::DType::F16, w.data(), p.rows, nullptr, y.as<float>(), p.rows};
  double us[2];
  for (const bool tree : {false, true}) {
    us[tree] = time_of(stream, [&](int) {
      tree ? fast_tiles(std::span(&rows, 1), p.cols, x.data(), kTokens, hopper, queue)
           : tiles_in_one_chain(std::span(&rows, 1), p.cols, x.data(), kTokens, hopper, queue);
    });
  }
  const auto rate = [&](double t) { return 2e-6 * static_cast<double>(kTokens * p.rows * p.cols) / t; };
  std::printf(
      "%-10s %6ld x %5ld: with the tree %7.1f us %4.0f T flop/s, one chain %7.1f us %4.0f T flop/s: the tree costs "
      "%+.1f %%\n",
      p.name, static_cast<long>(p.rows), static_cast<long>(p.cols), us[1], rate(us[1]), us[0], rate(us[0]),
      (us[1] / us[0] - 1) * 100);
}

}  // namespace

int main() {
  const Stream stream;
  int device = 0, n = 0;
  check(cudaGetDevice(&device), "asking for the GPU");
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device), "asking for the GPU");
  const Queue queue(stream.get(), can_overlap(), n);
  std::printf("one token, F16 weights\n");
  for (const Product& p :
       {Product{"8B qkv", 6144, 4096}, Product{"8B o", 4096, 4096}, Product{"8B gate+up", 28672, 4096},
        Product{"8B down", 4096, 14336}, Product{"8B head", 128256, 4096}, Product{"tiny qkv", 2560, 2048},
        Product{"tiny o", 2048, 2048}, Product{"tiny g+u", 11264, 2048}, Product{"tiny down", 2048, 5632}}) {
    time_product(p, queue, stream);
  }
  const HopperMemory hopper(true);
  std::printf("2,048 tokens, F16 weights\n");
  for (const Product& p :
       {Product{"8B qkv", 6144, 4096}, Product{"8B o", 4096, 4096}, Product{"8B gate+up", 28672, 4096},
        Product{"8B down", 4096, 14336}, Product{"tiny g+u", 11264, 2048}, Product{"tiny down", 2048, 5632}}) {
    if (hopper.view().n_processors > 0) time_tiles(p, hopper.view(), queue, stream);
  }
  std::printf("attention of one token, one layer\n");
  for (const Shape& shape : {Shape{"8B", 128, 32, 8}, Shape{"TinyLlama", 64, 32, 4}}) {
    for (const CacheType type : {CacheType::f16, CacheType::q8_0}) {
      for (const int64_t depth : {256, 2048, 32768, 131072}) time_attention(shape, type, depth, queue, stream);
    }
  }
}
