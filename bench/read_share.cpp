// Decoding against reading: products of one token over weights that no cache holds, in turns with a loop that only
// reads the same bytes, by the same threads. Prints GB/s of both and the median of their ratios, each of two passes
// that follow one another. read_share [THREADS [FORMAT...]]   e.g. read_share 2 Q4_K Q8_0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "backend/cpu/linear/linear_thread.h"
#include "base/thread_pool.h"
#include "linear_case.h"
#include "read_bytes.h"

namespace {

using namespace assay;

constexpr int kPasses = 41;
constexpr int64_t kBytes = 192 << 20;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class Pass>
double seconds(base::ThreadPool& pool, Pass pass) {
  const double begin = now();
  pool.run(pool.n_threads(), [&](int64_t part, int) { pass(part); });
  return now() - begin;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kPasses / 2, values.end());
  return values[kPasses / 2];
}

void measure(base::ThreadPool& pool, const quant::Format& format, int planes, int64_t k) {
  const tensor::DTypeTraits& traits = tensor::traits(format.dtype);
  if (k % traits.block_elements != 0) return;
  const int parts = pool.n_threads();
  const int64_t row_bytes = k / traits.block_elements * traits.block_bytes,
                rows = kBytes / row_bytes / (64 * parts) * 64 * parts, share = rows / parts;
  bench::LinearCase c({&format, backend::cpu::best_kernel_set(), 1, planes, k, rows});
  const backend::cpu::LinearChoice choice(backend::cpu::best_kernel_set(), c.task);
  const backend::cpu::LinearRange& range = choice.at(1);
  std::vector<base::AlignedBuffer> scratch;
  for (int i = 0; i < parts; ++i)
    scratch.emplace_back(backend::cpu::linear_scratch_bytes(backend::cpu::best_kernel_set(), c.task), "scratch");
  std::vector<double> reading, computing, ratio;
  for (int i = 0; i < kPasses; ++i) {
    reading.push_back(seconds(pool, [&](int64_t part) {
      bench::read_bytes(c.task.weights + part * share * row_bytes, c.task.weights + (part + 1) * share * row_bytes);
    }));
    computing.push_back(seconds(pool, [&](int64_t part) {
      backend::cpu::LinearThread(scratch[static_cast<size_t>(part)].data())
          .rows(range, c.task, part * share, (part + 1) * share);
    }));
    ratio.push_back(reading.back() / computing.back());
  }
  const double gigabytes = static_cast<double>(rows * row_bytes) * 1e-9;
  std::printf("%-8.*s planes %d, k %5d: reads %5.1f, computes %5.1f GB/s, %.2f of it\n",
              static_cast<int>(traits.name.size()), traits.name.data(), planes, static_cast<int>(k),
              gigabytes / median(reading), gigabytes / median(computing), median(ratio));
}

}  // namespace

int main(int argc, char** argv) {
  base::ThreadPool pool(argc > 1 ? std::max(1, std::atoi(argv[1])) : 2, true);
  for (const quant::Format& format : quant::all_formats()) {
    const std::string_view name = tensor::traits(format.dtype).name;
    if (argc > 2 && std::none_of(argv + 2, argv + argc, [&](const char* asked) { return name == asked; })) continue;
    for (const int planes : {1, 2}) {
      const bool floats = format.activation == quant::Activation::f32;
      if (floats && planes == 2) continue;
      for (const int64_t k : {576, 640, 2048, 5632}) measure(pool, format, floats ? 0 : planes, k);
    }
  }
  return 0;
}
