// Measures a model at work: prompts and generation in tokens per second, and what the machine could
// do at best.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "assay/context.h"

namespace assay {

// As llama-bench has them: n_prompt tokens in one go, then n_gen one by one, after n_depth tokens
// that are not timed.
struct BenchTest {
  int64_t n_prompt = 0;
  int64_t n_gen = 0;
  int64_t n_depth = 0;
};

struct BenchResult {
  BenchTest test;
  std::vector<int64_t> samples_ns;  // one for each repetition
  std::vector<double> samples_ts;   // tokens per second of each
  double avg_ns = 0, stddev_ns = 0;
  double avg_ts = 0, stddev_ts = 0;
};

// Runs random tokens. warm_up: one run before that does not count. Error(bad_request) where the
// test does not fit into the context. Once `cancelled` says true, the repetitions that are done are
// returned.
BenchResult run_bench(Context& context, const BenchTest& test, int64_t n_repetitions, bool warm_up,
                      const std::function<bool()>& cancelled = {});

// Bytes per second that n_threads threads read from memory: the best of several passes over a
// buffer larger than the caches.
double measure_read_bandwidth(int n_threads);

int64_t
peak_memory_bytes();  // of this process so far, pages of mapped files that it touched among them
std::string processor_name();  // as the operating system calls it; empty where it does not say

}  // namespace assay
