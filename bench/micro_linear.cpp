// Speed of every row of the CPU's tables of matrix products (linear_table.h) on one core, forced whatever the table
// would choose: time, bytes of weights and multiply-adds per second, and the share of the limit that applies. See kHelp.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/cpu/linear/linear_thread.h"
#include "backend/cpu/sets/peak.h"
#include "base/aligned_buffer.h"
#include "linear_case.h"
#include "read_bytes.h"

namespace {

using namespace assay;
using backend::cpu::LinearRow;
using Setting = bench::LinearSetting;

constexpr const char* kHelp =
    "micro_linear [--benchmark_filter=REGEX] [--benchmark_min_time=S] [...]\n"
    "Times every row of the tables of matrix products that this processor can run, on one core: each row alone, in\n"
    "every format and number of planes (0: mode f32) that it takes, at numbers of tokens within its range.\n"
    "  names     SET:ROW/FORMAT/tokens:N/planes:P/k:COLUMNS/rows:ROWS, e.g. avx512:skinny/Q4_K/tokens:3/...\n"
    "  GB/s      bytes of weights\n"
    "  GMAC/s    multiply-adds\n"
    "  of_limit  share of the limit: of reading the same bytes, by a loop that only reads, and of as many multiplying\n"
    "            instructions of the set on registers alone, the longer time by the row's own\n"
    "  label     which of the two it is; 'passed over here': the table does not choose the row on this processor\n"
    "The weights lie in the second-level cache; read_share has products of one token whose weights no cache holds.\n"
    "  micro_linear --benchmark_filter='avx512:skinny/Q4_K/.*'\n\n";

// Of this thread's time on a processor, as the benchmark counts rates: what others do on the machine matters less.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The best of several passes.
template <class Run>
double best_seconds(int repeats, Run run) {
  double best = std::numeric_limits<double>::max();
  for (int pass = 0; pass < 20; ++pass) {
    const double begin = now();
    for (int i = 0; i < repeats; ++i) run();
    best = std::min(best, (now() - begin) / repeats);
  }
  return best;
}

// Multiply-adds per second of the set's instructions; 0: not known.
double peak_of(Kernels set, bool floats) {
  static std::map<std::pair<Kernels, bool>, double> known;
  const auto [entry, is_new] = known.try_emplace({set, floats}, 0.0);
  if (!is_new) return entry->second;
  const backend::cpu::PeakLoops loops = backend::cpu::peak_loops(set);
  const backend::cpu::PeakLoop& loop = floats ? loops.floats : loops.bytes;
  if (loop.run == nullptr) return 0;
  const int64_t n_steps = (int64_t{1} << 27) / loop.multiply_adds;
  entry->second = static_cast<double>(n_steps * loop.multiply_adds) / best_seconds(1, [&] { loop.run(n_steps); });
  return entry->second;
}

void run(benchmark::State& state, const Setting& s, const LinearRow& row) {
  bench::LinearCase c(s);
  const backend::cpu::LinearChoice choice(s.set, row, c.task);
  const backend::cpu::LinearRange& range = choice.at(s.tokens);
  base::AlignedBuffer scratch(choice.scratch_bytes(c.task), "scratch");
  const auto bytes = static_cast<double>(c.task.row_bytes * s.rows);
  const auto multiply_adds = static_cast<double>(s.k * s.rows * s.tokens);
  const double reading =
      best_seconds(5, [&] { bench::read_bytes(c.task.weights, c.task.weights + c.task.row_bytes * s.rows); });
  const double peak = peak_of(s.set, s.planes == 0);
  const double multiplying = peak > 0 ? multiply_adds * std::max(1, s.planes) / peak : 0;
  const double begin = now();
  for (auto _ : state) {
    backend::cpu::LinearThread(scratch.data()).rows(range, c.task, 0, s.rows);
    benchmark::ClobberMemory();
  }
  const double took = now() - begin;
  const auto n = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(n * bytes * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GMAC/s"] = benchmark::Counter(n * multiply_adds * 1e-9, benchmark::Counter::kIsRate);
  state.counters["of_limit"] = n * std::max(reading, multiplying) / took;
  const bool is_passed_over = row.is_wanted != nullptr && !row.is_wanted();
  state.SetLabel(std::string(reading > multiplying ? "read" : "multiply") +
                 (is_passed_over ? ", passed over here" : ""));
}

bool takes(const LinearRow& row, const Setting& s) {
  const tensor::DTypeTraits& traits = tensor::traits(s.format->dtype);
  if (s.k % traits.block_elements != 0) return false;
  backend::cpu::LinearTask task;
  task.format = s.format;
  task.k = s.k;
  task.row_bytes = s.k / traits.block_elements * traits.block_bytes;
  task.as_f32 = s.planes == 0;
  task.x.planes = s.planes;
  return row.takes(task);
}

void add(const Setting& s, const LinearRow& row) {
  const std::string title = std::string(name(s.set)) + ":" + std::string(row.name) + "/" +
                            std::string(tensor::traits(s.format->dtype).name) + "/tokens:" + std::to_string(s.tokens) +
                            "/planes:" + std::to_string(s.planes) + "/k:" + std::to_string(s.k) +
                            "/rows:" + std::to_string(s.rows);
  benchmark::RegisterBenchmark(title.c_str(), [s, &row](benchmark::State& state) { run(state, s, row); });
}

// Of the columns the first that the row takes in this format; tokens from the row's least on. False where it takes none.
bool add_row(const quant::Format& format, Kernels set, const LinearRow& row, int planes) {
  if (planes > 0 && format.activation == quant::Activation::f32) return false;
  for (const int64_t k : {2048, 1536, 512}) {
    Setting s{&format, set, 1, planes, k, 256};
    if (!takes(row, s)) continue;
    std::vector<int64_t> tokens = {1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 128};
    std::erase_if(tokens, [&](int64_t n) { return n <= row.tokens_min || n > row.tokens_max; });
    tokens.insert(tokens.begin(), row.tokens_min);
    for (const int64_t n : tokens) {
      s.tokens = n;
      s.rows = n == 1 ? 512 : 256;
      add(s, row);
    }
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  for (const Kernels set : backend::cpu::kernel_sets()) {
    for (const LinearRow& row : backend::cpu::linear_table(set)) {
      bool is_timed = false;
      for (const quant::Format& format : quant::all_formats()) {
        for (const int planes : {0, 1, 2}) is_timed = add_row(format, set, row, planes) || is_timed;
      }
      if (!is_timed) {
        std::fprintf(stderr, "micro_linear: no format and number of columns here has the row %s:%s\n",
                     std::string(name(set)).c_str(), std::string(row.name).c_str());
        return 1;
      }
    }
  }
  benchmark::Initialize(&argc, argv, [] {
    std::fputs(kHelp, stdout);
    benchmark::PrintDefaultHelp();
  });
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
