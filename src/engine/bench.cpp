// Measurements.
#include "assay/bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <numeric>

#include "assay/error.h"
#include "backend/cuda/cuda.h"
#include "base/thread_pool.h"
#include "engine/random_tokens.h"

namespace assay {
namespace {

using engine::random_tokens;

// One after the other into every sequence. False where it was cancelled.
bool run_prompts(Context& context, std::span<const TokenId> ids, int64_t n_sequences) {
  for (int64_t sequence = 0; sequence < n_sequences && !ids.empty(); ++sequence) {
    if (context.decode(ids, static_cast<int>(sequence)) != static_cast<int64_t>(ids.size())) return false;
  }
  return true;
}

bool run_tokens(Context& context, const BenchTest& test, std::span<const TokenId> ids,
                const std::function<bool()>& cancelled) {
  const auto n_prompt = static_cast<size_t>(test.n_prompt);
  if (!run_prompts(context, ids.first(n_prompt), test.n_sequences)) return false;
  std::vector<BatchToken> batch(static_cast<size_t>(test.n_sequences));
  for (size_t i = 0; i < static_cast<size_t>(test.n_gen); ++i) {
    if (cancelled && cancelled()) return false;
    for (size_t sequence = 0; sequence < batch.size(); ++sequence) {
      batch[sequence] = {ids[n_prompt + i], static_cast<int>(sequence), true};
    }
    context.decode_batch(batch);
  }
  return true;
}

void truncate_all(Context& context, int64_t n_positions) {
  for (int sequence = 0; sequence < context.options().n_sequences; ++sequence) context.truncate(n_positions, sequence);
}

template <class T>
std::pair<double, double> mean_and_deviation(
    const std::vector<T>& samples) {  // of the sample, n - 1
  if (samples.empty()) return {0, 0};
  const auto n = static_cast<double>(samples.size());
  const double mean = static_cast<double>(std::accumulate(samples.begin(), samples.end(), T{})) / n;
  double squares = 0;
  for (T x : samples) squares += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean);
  return {mean, samples.size() > 1 ? std::sqrt(squares / (n - 1)) : 0};
}

}  // namespace

BenchResult run_bench(Context& context, const BenchTest& test, int64_t n_repetitions, bool warm_up,
                      const std::function<bool()>& cancelled) {
  const int64_t n_timed = test.n_prompt + test.n_gen;
  if (test.n_prompt < 0 || test.n_gen < 0 || test.n_depth < 0 || n_timed == 0 ||
      n_repetitions < 1) {
    throw Error(Errc::bad_request,
                fmt::format("a benchmark of {} prompt tokens, {} generated ones, depth {}, {} "
                            "repetitions: needs at "
                            "least one token and one repetition",
                            test.n_prompt, test.n_gen, test.n_depth, n_repetitions));
  }
  if (test.n_sequences < 1 || test.n_sequences > context.options().n_sequences) {
    throw Error(Errc::bad_request, fmt::format("a benchmark of {} sequences: the context holds {}", test.n_sequences,
                                               context.options().n_sequences));
  }
  if (n_timed > context.n_ctx() - test.n_depth) {
    throw Error(
        Errc::bad_request,
        fmt::format("the benchmark needs {} positions, the context holds {}: raise it with -c",
                    n_timed + test.n_depth, context.n_ctx()));
  }
  const std::vector<TokenId> ids = random_tokens(n_timed, context.model().vocab_size());
  const std::vector<TokenId> depth = random_tokens(test.n_depth, context.model().vocab_size());
  BenchResult result;
  result.test = test;
  context.clear();
  context.set_cancel(cancelled);
  bool goes_on = run_prompts(context, depth, test.n_sequences);
  if (goes_on && warm_up) {
    const BenchTest brief{std::min<int64_t>(test.n_prompt, context.options().n_ubatch),
                          std::min<int64_t>(test.n_gen, 1), 0, test.n_sequences};
    goes_on = run_tokens(context, brief, ids, cancelled);
  }
  for (int64_t i = 0; i < n_repetitions && goes_on; ++i) {
    truncate_all(context, test.n_depth);
    const auto start = std::chrono::steady_clock::now();
    goes_on = run_tokens(context, test, ids, cancelled);
    const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::steady_clock::now() - start)
                           .count();
    if (!goes_on) break;
    result.samples_ns.push_back(ns);
    result.samples_ts.push_back(static_cast<double>(n_timed * test.n_sequences) * 1e9 / static_cast<double>(ns));
  }
  context.set_cancel({});
  std::tie(result.avg_ns, result.stddev_ns) = mean_and_deviation(result.samples_ns);
  std::tie(result.avg_ts, result.stddev_ts) = mean_and_deviation(result.samples_ts);
  return result;
}

double measure_read_bandwidth(int n_threads) {
  constexpr int64_t kWordsPerThread = int64_t{1} << 24;  // 128 MiB each
  constexpr int kPasses = 4;
  base::ThreadPool pool(n_threads);
  std::vector<std::vector<uint64_t>> buffers(static_cast<size_t>(n_threads));
  pool.run(n_threads,
           [&](int64_t i, int) { buffers[static_cast<size_t>(i)].assign(kWordsPerThread, 1); });
  std::atomic<uint64_t> total{0};  // the sums are used, so that no read can be left out
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(n_threads, [&](int64_t i, int) {
      uint64_t lane[16] = {};
      const uint64_t* words = buffers[static_cast<size_t>(i)].data();
      for (int64_t j = 0; j < kWordsPerThread; j += 16) {
        for (int k = 0; k < 16; ++k) lane[k] += words[j + k];
      }
      total += std::accumulate(lane, lane + 16, uint64_t{0});
    });
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best,
                    static_cast<double>(n_threads) * kWordsPerThread * sizeof(uint64_t) / seconds);
  }
  return total == static_cast<uint64_t>(n_threads) * kWordsPerThread * kPasses ? best : 0;
}

double measure_bandwidth(const Context& context) {
  if (context.options().backend == Backend::cuda) return backend::cuda::measure_device_bandwidth();
  return measure_read_bandwidth(context.options().n_threads);
}

int64_t peak_memory_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace assay
