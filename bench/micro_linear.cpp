// Speed of the matrix kernels on one core: bytes of weights per second and multiply-adds per second for each format,
// kernel set, number of tokens
// and of planes (0: mode f32).   micro_linear [--benchmark_filter=Q4_K/avx512/.*]
#include <benchmark/benchmark.h>

#include <string>

#include "backend/cpu/linear/linear_thread.h"
#include "linear_case.h"

namespace {

using namespace assay;
using Setting = bench::LinearSetting;

void run(benchmark::State& state, const Setting& s) {
  bench::LinearCase c(s);
  const backend::cpu::LinearChoice choice(s.set, c.task);
  const backend::cpu::LinearRange& range = choice.at(s.tokens);
  for (auto _ : state) {
    backend::cpu::LinearThread(c.scratch.data()).rows(range, c.task, 0, s.rows);
    benchmark::ClobberMemory();
  }
  const auto n = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      benchmark::Counter(n * static_cast<double>(c.task.row_bytes * s.rows) * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GMAC/s"] =
      benchmark::Counter(n * static_cast<double>(s.k * s.rows * s.tokens) * 1e-9, benchmark::Counter::kIsRate);
}

void add(const Setting& s) {
  const std::string name = std::string(tensor::traits(s.format->dtype).name) + "/" + std::string(assay::name(s.set)) +
                           "/tokens:" + std::to_string(s.tokens) + "/planes:" + std::to_string(s.planes) +
                           "/k:" + std::to_string(s.k) + "/rows:" + std::to_string(s.rows);
  benchmark::RegisterBenchmark(name.c_str(), [s](benchmark::State& state) { run(state, s); });
}

}  // namespace

int main(int argc, char** argv) {
  for (const quant::Format& format : quant::all_formats()) {
    for (const Kernels set : backend::cpu::kernel_sets().subspan(1)) {
      for (const int planes : {0, 1, 2}) {
        if (planes > 0 && format.activation == quant::Activation::f32) continue;
        for (const int64_t tokens : {1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 128})
          add({&format, set, tokens, planes, 2048, tokens == 1 ? 512 : 256});
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
