// What the machine does at best, and what this process took of it (assay/bench.h).
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <numeric>

#include "assay/bench.h"
#include "backend/cpu/sets/peak.h"
#include "backend/cuda/cuda.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "engine/context_options.h"

namespace assay {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// In huge pages, as a mapped model has them at best: in small ones address translation binds, not the memory.
double measure_read_bandwidth(base::ThreadPool& pool) {
  constexpr int64_t kWordsPerThread = int64_t{1} << 24;  // 128 MiB each
  constexpr int64_t kBytesPerThread = kWordsPerThread * static_cast<int64_t>(sizeof(uint64_t));
  constexpr int kPasses = 6;
  const int n_threads = pool.n_threads();
  base::AlignedBuffer buffer(static_cast<uint64_t>(n_threads * kBytesPerThread), "measuring the read bandwidth");
  buffer.advise_huge_pages();
  const auto part_of = [&](int64_t i) {
    return std::assume_aligned<64>(reinterpret_cast<uint64_t*>(buffer.data() + i * kBytesPerThread));
  };
  pool.run(n_threads, [&](int64_t i, int) { std::fill_n(part_of(i), kWordsPerThread, 1); });
  std::atomic<uint64_t> total{0};  // the sums are used, so that no read can be left out
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(n_threads, [&](int64_t i, int) {
      uint64_t lane[16] = {};
      const uint64_t* words = part_of(i);
      for (int64_t j = 0; j < kWordsPerThread; j += 16) {
        for (int k = 0; k < 16; ++k) lane[k] += words[j + k];
      }
      total += std::accumulate(lane, lane + 16, uint64_t{0});
    });
    best = std::max(best, static_cast<double>(n_threads * kBytesPerThread) / seconds_since(start));
  }
  return total == static_cast<uint64_t>(n_threads) * kWordsPerThread * kPasses ? best : 0;
}

// Multiply-adds per second of all threads together, the best of several passes.
double measure_peak(base::ThreadPool& pool, const backend::cpu::PeakLoop& loop) {
  if (loop.run == nullptr) return 0;
  constexpr int kPasses = 10;
  constexpr int64_t kMultiplyAdds = int64_t{1} << 30;  // of each thread and pass: some milliseconds
  const int64_t n_steps = kMultiplyAdds / loop.multiply_adds;
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(pool.n_threads(), [&](int64_t, int) { loop.run(n_steps); });
    best = std::max(best, static_cast<double>(n_steps * loop.multiply_adds * pool.n_threads()) / seconds_since(start));
  }
  return best;
}

}  // namespace

double read_bandwidth(int n_threads) {
  base::ThreadPool pool(n_threads);
  return measure_read_bandwidth(pool);
}

MachineLimits measure_limits(const Context& context) {
  const ContextOptions& options = context.options();
  MachineLimits limits;
  if (options.backend == Backend::cuda) {
    limits.read_bandwidth = backend::cuda::measure_device_bandwidth();
    return limits;
  }
  if (options.backend == Backend::vulkan) return limits;  // not measured
  base::ThreadPool pool(options.n_threads, options.pin_threads);
  limits.read_bandwidth = measure_read_bandwidth(pool);
  if (options.numerics == Numerics::oracle) return limits;
  const backend::cpu::PeakLoops loops = backend::cpu::peak_loops(engine::runnable(options.kernels));
  limits.byte_products = measure_peak(pool, loops.bytes);
  limits.float_multiply_adds = measure_peak(pool, loops.floats);
  limits.byte_instructions = loops.bytes.instructions;
  limits.float_instructions = loops.floats.instructions;
  return limits;
}

double share_of_bandwidth(const Work& work, double seconds, const MachineLimits& limits) noexcept {
  if (limits.read_bandwidth <= 0 || seconds <= 0) return 0;
  return static_cast<double>(work.bytes) / limits.read_bandwidth / seconds;
}

double share_of_peak(const Work& work, double seconds, const MachineLimits& limits) noexcept {
  if (limits.byte_products <= 0 || limits.float_multiply_adds <= 0 || seconds <= 0) return 0;
  const double least = static_cast<double>(work.byte_products) / limits.byte_products +
                       static_cast<double>(work.float_multiply_adds) / limits.float_multiply_adds;
  return least / seconds;
}

int64_t peak_memory_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace assay
