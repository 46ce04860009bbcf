// Speed and start of a model (assay/bench.h).
#include "assay/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "assay/error.h"
#include "engine/model_state.h"
#include "measure/random_tokens.h"
#include "measure/work.h"

namespace assay {
namespace {

using measure::random_tokens;
using Clock = std::chrono::steady_clock;

double elapsed_ms(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// One after the other into every sequence. False where it was cancelled.
bool run_prompts(Context& context, std::span<const TokenId> ids, int64_t n_sequences, const RunRequest& request) {
  for (int64_t sequence = 0; sequence < n_sequences && !ids.empty(); ++sequence) {
    if (context.decode(ids, static_cast<int>(sequence), request) != static_cast<int64_t>(ids.size())) return false;
  }
  return true;
}

void truncate_all(Context& context, int64_t n_positions) {
  for (int sequence = 0; sequence < context.options().n_sequences; ++sequence) context.truncate(n_positions, sequence);
}

template <class T>
std::pair<double, double> mean_and_deviation(const std::vector<T>& samples) {  // of the sample, n - 1
  if (samples.empty()) return {0, 0};
  const auto n = static_cast<double>(samples.size());
  const double mean = static_cast<double>(std::accumulate(samples.begin(), samples.end(), T{})) / n;
  double squares = 0;
  for (T x : samples) squares += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean);
  return {mean, samples.size() > 1 ? std::sqrt(squares / (n - 1)) : 0};
}

}  // namespace

// Where it is found on the device, the best token is what leaves it, as when it is drawn.
Bench::Bench(Context& context, bool runs_ahead)
    : context_(context), is_ranked_(context.n_ranked_max() > 0), runs_ahead_(runs_ahead),
      n_kept_(static_cast<size_t>(context.options().n_sequences)) {
  context.clear();
}

bool Bench::run_tokens(const BenchTest& test, std::span<const TokenId> ids, const std::function<bool()>& cancelled) {
  const auto n_prompt = static_cast<size_t>(test.n_prompt), n_gen = static_cast<size_t>(test.n_gen);
  RunRequest request{.cancelled = cancelled, .n_ranked = is_ranked_ ? 1 : 0};
  if (!run_prompts(context_, ids.first(n_prompt), test.n_sequences, request)) return false;
  std::vector<BatchToken> batch(static_cast<size_t>(test.n_sequences));
  for (size_t i = 0; i < n_gen; ++i) {
    if (cancelled && cancelled()) return false;
    for (size_t sequence = 0; sequence < batch.size(); ++sequence) {
      std::span<const RankedLogit> best;
      if (is_ranked_ && i > 0) best = context_.batch_ranked(static_cast<int64_t>(sequence));
      batch[sequence] = {best.empty() ? ids[n_prompt + i] : best.front().id, static_cast<int>(sequence), true};
    }
    request.follows_best = runs_ahead_ && i + 1 < n_gen;
    context_.decode_batch(batch, request);
  }
  return true;
}

void Bench::check(const BenchTest& test, int64_t n_repetitions) const {
  const int64_t n_ctx = context_.n_ctx();
  const auto fits = [&](int64_t n) { return n >= 0 && n <= n_ctx; };
  if (test.n_prompt < 0 || test.n_gen < 0 || test.n_depth < 0 || (test.n_prompt == 0 && test.n_gen == 0) ||
      n_repetitions < 1) {
    throw Error(
        Errc::bad_request,
        fmt::format("a benchmark of {} prompt tokens, {} generated ones, depth {}, {} repetitions: needs at least "
                    "one token and one repetition",
                    test.n_prompt, test.n_gen, test.n_depth, n_repetitions));
  }
  if (test.n_sequences < 1 || test.n_sequences > context_.options().n_sequences) {
    throw Error(Errc::bad_request, fmt::format("a benchmark of {} sequences: the context holds {}", test.n_sequences,
                                               context_.options().n_sequences));
  }
  if (!fits(test.n_prompt) || !fits(test.n_gen) || !fits(test.n_depth) ||
      test.n_prompt + test.n_gen + test.n_depth > n_ctx) {
    throw Error(Errc::bad_request,
                fmt::format("a benchmark of {} prompt tokens and {} generated ones after {}: the context holds {} "
                            "positions; a larger n_ctx has room",
                            test.n_prompt, test.n_gen, test.n_depth, n_ctx));
  }
}

// Fills the first n_depth positions of each sequence. False where it was cancelled.
bool Bench::fill_depth(const BenchTest& test, const std::function<bool()>& cancelled) {
  const std::vector<TokenId> ids = random_tokens(test.n_depth, context_.model().vocab_size());
  for (int64_t sequence = 0; sequence < context_.options().n_sequences; ++sequence) {
    int64_t& n_kept = n_kept_[static_cast<size_t>(sequence)];
    n_kept = sequence < test.n_sequences ? std::min(n_kept, test.n_depth) : 0;
    context_.truncate(n_kept, static_cast<int>(sequence));
    if (sequence >= test.n_sequences || n_kept == test.n_depth) continue;
    const std::span<const TokenId> rest = std::span(ids).subspan(static_cast<size_t>(n_kept));
    n_kept += context_.decode(rest, static_cast<int>(sequence), {.cancelled = cancelled});
    if (n_kept < test.n_depth) return false;
  }
  return true;
}

BenchResult Bench::run(const BenchTest& test, int64_t n_repetitions, bool warm_up,
                       const std::function<bool()>& cancelled) {
  check(test, n_repetitions);
  const int64_t n_timed = test.n_prompt + test.n_gen;
  const std::vector<TokenId> ids = random_tokens(n_timed, context_.model().vocab_size());
  BenchResult result;
  result.test = test;
  result.work = measure::WorkCounter(context_.model().state().built.plan, context_.options()).of_test(test);
  bool goes_on = fill_depth(test, cancelled);
  if (goes_on && warm_up) {
    // Two tokens: what a device records of the first or second is at hand then.
    const BenchTest brief{std::min(test.n_prompt, context_.options().n_ubatch), std::min<int64_t>(test.n_gen, 2), 0,
                          test.n_sequences};
    goes_on = run_tokens(brief, ids, cancelled);
  }
  for (int64_t i = 0; i < n_repetitions && goes_on; ++i) {
    truncate_all(context_, test.n_depth);
    const auto start = Clock::now();
    goes_on = run_tokens(test, ids, cancelled);
    const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    if (!goes_on) break;
    result.samples_ns.push_back(ns);
    result.samples_ts.push_back(static_cast<double>(n_timed * test.n_sequences) * 1e9 / static_cast<double>(ns));
  }
  std::tie(result.avg_ns, result.stddev_ns) = mean_and_deviation(result.samples_ns);
  std::tie(result.avg_ts, result.stddev_ts) = mean_and_deviation(result.samples_ts);
  return result;
}

std::vector<StartTiming> measure_start(const std::string& path, const ContextOptions& options, int64_t n_repetitions,
                                       const std::function<bool()>& cancelled) {
  std::vector<StartTiming> timings;
  for (int64_t i = 0; i < n_repetitions && !(cancelled && cancelled()); ++i) {
    StartTiming timing;
    const std::shared_ptr<const Model> model = Model::load(path);
    timing.load = model->load_timing();
    auto start = Clock::now();
    Context context(model, options);
    timing.context_ms = elapsed_ms(start);
    start = Clock::now();
    context.decode(random_tokens(kStartTokens, model->vocab_size()));
    const std::span<const float> logits = context.logits();
    const auto most_likely = std::max_element(logits.begin(), logits.end());
    timing.first_token_ms = most_likely == logits.end() ? 0 : elapsed_ms(start);
    timings.push_back(timing);
  }
  return timings;
}

}  // namespace assay
