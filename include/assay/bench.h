// Measures a model at work: prompts and generation in tokens per second, the start, where the time goes, and what the
// machine could do at best.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "assay/context.h"

namespace assay {

// What a run has to do at least, counted from the model's plan: bytes of weights, keys and values that it reads (a
// weight once for all tokens of one pass, the embedding's rows alone) and its multiply-adds.
struct Work {
  int64_t bytes = 0;
  int64_t multiply_adds = 0;  // of matrix products and attention
  int64_t byte_products = 0;  // of these by integer instructions: two each with activations of 15 bits, one with 8
  int64_t float_multiply_adds = 0;  // of these by float instructions: attention, and weights that are floats

  Work& operator+=(const Work& other) noexcept {
    bytes += other.bytes;
    multiply_adds += other.multiply_adds;
    byte_products += other.byte_products;
    float_multiply_adds += other.float_multiply_adds;
    return *this;
  }
};

// What the machine does at best with a context's threads and kernels; 0: not known. On a GPU the bandwidth is that of a
// copy within its memory, bytes read and written both counted, and the peaks are not known.
struct MachineLimits {
  double read_bandwidth = 0;       // bytes per second: the best pass over memory larger than the caches, in huge pages
  double byte_products = 0;        // per second: a loop of the kernel set's own instructions on registers alone
  double float_multiply_adds = 0;  // the same
  std::string byte_instructions, float_instructions;  // which ones
};
MachineLimits measure_limits(const Context& context);
// Its first figure alone, by so many threads that sum 128 MiB each.
double read_bandwidth(int n_threads);

// The share of its limit that a run of so much work reaches in so many seconds; 0 where the limit is not known.
double share_of_bandwidth(const Work& work, double seconds, const MachineLimits& limits) noexcept;
double share_of_peak(const Work& work, double seconds, const MachineLimits& limits) noexcept;

// As llama-bench has them: n_prompt tokens in one go, then n_gen one by one, after n_depth tokens that are in the cache
// already and not timed. Prompts are random; generated is the best token each time where the device finds it
// (RunRequest::n_ranked), else random ones, too. With several sequences each has all of these, and generation runs one
// token of each at a time.
struct BenchTest {
  int64_t n_prompt = 0;
  int64_t n_gen = 0;
  int64_t n_depth = 0;
  int64_t n_sequences = 1;
};

struct BenchResult {
  BenchTest test;
  Work work;                        // of one repetition
  std::vector<int64_t> samples_ns;  // one for each repetition
  std::vector<double> samples_ts;   // tokens per second of each
  double avg_ns = 0, stddev_ns = 0;
  double avg_ts = 0, stddev_ts = 0;
};

// Runs tests of tokens that are always the same, so that a test keeps of the cache what the one before had as its
// depth. Nobody else may use the context between two tests.
class Bench {  // one thread at a time
 public:
  // Clears the context, which must outlive this. runs_ahead: generation lets the device begin with the best token, as
  // greedy answers do (RunRequest::follows_best); false: a token is run when it is asked for.
  explicit Bench(Context& context, bool runs_ahead = true);

  // warm_up: one short run before that does not count. Error(bad_request) where the test does not fit into the context.
  // Once `cancelled` says true, the repetitions that are done are returned.
  BenchResult run(const BenchTest& test, int64_t n_repetitions, bool warm_up,
                  const std::function<bool()>& cancelled = {});

 private:
  void check(const BenchTest& test, int64_t n_repetitions) const;
  bool fill_depth(const BenchTest& test, const std::function<bool()>& cancelled);
  bool run_tokens(const BenchTest& test, std::span<const TokenId> ids, const std::function<bool()>& cancelled);

  Context& context_;
  const bool is_ranked_, runs_ahead_;
  std::vector<int64_t> n_kept_;  // by sequence: positions that hold the first tokens of a depth
};

// Where the time of a run goes: steps (ops that run together) that do the same work in every layer are one row.
struct ProfileRow {
  std::string ops;      // "attn_q + attn_k + attn_v"
  int64_t n_steps = 0;  // of one run
  double seconds = 0;   // of one run, the median over the repetitions
  Work work;            // of one run
};

struct Profile {
  int64_t n_tokens = 0;          // of the run
  int64_t n_past = 0;            // positions in the cache before it
  double seconds = 0;            // of one run, the sum of the rows
  double untimed_seconds = 0;    // of one run whose steps are not timed, the median over as many repetitions
  std::vector<ProfileRow> rows;  // the longest first
};

// Runs n_tokens random tokens after n_past others. Error(bad_request) where they do not fit or where what runs cannot
// tell its steps apart.
Profile profile(Context& context, int64_t n_tokens, int64_t n_past, int64_t n_repetitions);

// Milliseconds from a path to the first logits.
struct StartTiming {
  LoadTiming load;
  double context_ms = 0;      // memory and threads
  double first_token_ms = 0;  // kStartTokens tokens to logits and the most likely of them
  double total_ms() const noexcept { return load.total_ms() + context_ms + first_token_ms; }
};
inline constexpr int64_t kStartTokens = 5;

// Loads the model, its vocabulary too, n_repetitions times from the beginning; the first is the cold one where the
// file's pages are not in memory yet. Errors as of Model::load and Context.
std::vector<StartTiming> measure_start(const std::string& path, const ContextOptions& options, int64_t n_repetitions,
                                       const std::function<bool()>& cancelled = {});

int64_t peak_memory_bytes();  // of this process so far, pages of mapped files that it touched among them

}  // namespace assay
