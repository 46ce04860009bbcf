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
// that are not timed. With several sequences each has all of these, and generation runs one token
// of each at a time.
struct BenchTest {
  int64_t n_prompt = 0;
  int64_t n_gen = 0;
  int64_t n_depth = 0;
  int64_t n_sequences = 1;
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

// Where the time of a run goes: steps (ops that run together) that do the same work in every layer
// are one row.
struct ProfileRow {
  std::string ops;       // "attn_q + attn_k + attn_v"
  int64_t n_steps = 0;   // of one run
  double seconds = 0;    // of one run, the median over the repetitions
  int64_t bytes = 0;     // that one run reads: weights, and the cache's keys and values
  int64_t multiply_adds = 0;
};

struct Profile {
  int64_t n_tokens = 0;  // of the run
  int64_t n_past = 0;    // positions in the cache before it
  double seconds = 0;    // of one run, the sum of the rows
  std::vector<ProfileRow> rows;  // the longest first
};

// Runs n_tokens random tokens after n_past others. Error(bad_request) where they do not fit or where
// what runs cannot tell its steps apart.
Profile profile(Context& context, int64_t n_tokens, int64_t n_past, int64_t n_repetitions);

// Bytes per second that n_threads threads read from memory: the best of several passes over a
// buffer larger than the caches.
double measure_read_bandwidth(int n_threads);
// The same for what the context runs on: the processor with the context's threads, or the GPU, whose
// bandwidth is that of a copy within its memory, bytes read and written both counted.
double measure_bandwidth(const Context& context);

int64_t
peak_memory_bytes();  // of this process so far, pages of mapped files that it touched among them
std::string processor_name();  // as the operating system calls it; empty where it does not say

}  // namespace assay
