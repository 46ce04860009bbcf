// Speed of the matrix kernels on one core: bytes of weights per second and multiply-adds per second for each format, kernel set, number of tokens
// and of planes (0: mode f32).   micro_linear [--benchmark_filter=Q4_K/avx512/.*]
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "backend/cpu/linear.h"
#include "support/random_weights.h"

namespace {

using namespace assay;
using backend::cpu::KernelSet;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
std::unique_ptr<std::byte, Free> aligned_bytes(size_t n) {
  return std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(std::aligned_alloc(64, (n + 127) / 64 * 64)));
}

struct Setting {
  const quant::Format* format;
  KernelSet set;
  int64_t tokens;
  int planes;
  int64_t k, rows;
};

void run(benchmark::State& state, Setting s) {
  const tensor::DTypeTraits& traits = tensor::traits(s.format->dtype);
  backend::cpu::LinearTask task;
  task.format = s.format;
  task.k = s.k;
  task.row_bytes = s.k / traits.block_elements * traits.block_bytes;
  const std::vector<std::byte> row = test::random_weights(*s.format, s.k, 1);
  const auto weights = aligned_bytes(static_cast<size_t>(task.row_bytes * s.rows));
  for (int64_t r = 0; r < s.rows; ++r) std::memcpy(weights.get() + r * task.row_bytes, row.data(), row.size());
  task.weights = weights.get();
  task.as_f32 = s.planes == 0;
  task.n_tokens = s.tokens;
  const std::vector<float> x = test::random_activations(s.tokens * s.k, 2);
  task.x_f32 = tensor::ConstMat(x.data(), s.tokens, s.k, s.k);
  std::unique_ptr<std::byte, Free> activations;
  if (s.planes > 0) {
    activations = aligned_bytes(quant::activations_bytes(s.format->activation, s.planes, s.tokens, s.k));
    task.x = quant::carve(s.format->activation, s.planes, s.tokens, s.k, activations.get());
    backend::cpu::quantise_rows(s.set, task.x_f32, task.x, 0, s.tokens);
  }
  std::vector<float> y(static_cast<size_t>(s.tokens * s.rows));
  task.y = tensor::Mat{y.data(), s.tokens, s.rows, s.rows};
  const auto scratch = aligned_bytes(backend::cpu::linear_scratch_bytes(s.set, task));
  for (auto _ : state) {
    backend::cpu::linear_rows(s.set, task, 0, s.rows, scratch.get());
    benchmark::ClobberMemory();
  }
  const auto n = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(n * static_cast<double>(task.row_bytes * s.rows) * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GMAC/s"] =
      benchmark::Counter(n * static_cast<double>(s.k * s.rows * s.tokens) * 1e-9, benchmark::Counter::kIsRate);
}

void add(const Setting& s) {
  const std::string name = std::string(tensor::traits(s.format->dtype).name) + "/" + std::string(backend::cpu::name(s.set)) +
                           "/tokens:" + std::to_string(s.tokens) + "/planes:" + std::to_string(s.planes) + "/k:" +
                           std::to_string(s.k) + "/rows:" + std::to_string(s.rows);
  benchmark::RegisterBenchmark(name.c_str(), [s](benchmark::State& state) { run(state, s); });
}

}  // namespace

int main(int argc, char** argv) {
  for (const quant::Format& format : quant::all_formats()) {
    for (const KernelSet set : backend::cpu::kernel_sets().subspan(1)) {
      for (const int planes : {0, 1, 2}) {
        if (planes > 0 && format.activation == quant::Activation::f32) continue;
        for (const int64_t tokens : {1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 128}) add({&format, set, tokens, planes, 2048, tokens == 1 ? 512 : 256});
        add({&format, set, 1, planes, 768, 40});
        if (planes == 0) add({&format, set, 128, planes, 2112, 256});
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
