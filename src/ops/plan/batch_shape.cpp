// See batch_shape.h.
#include "ops/plan/batch_shape.h"

#include <algorithm>
#include <string>

#include "assay/error.h"

namespace assay::ops {

void BatchShape::reserve(const ExecutorOptions& options) {
  selected.reserve(static_cast<size_t>(options.n_outputs_max));
  token_runs.reserve(static_cast<size_t>(options.n_batch_max));
  n_positions.reserve(static_cast<size_t>(options.n_sequences));
}

void check_sequence(int64_t sequence, const ExecutorOptions& options) {
  if (sequence < 0 || sequence >= options.n_sequences) {
    throw Error(Errc::bad_request, "sequence " + std::to_string(sequence) + " was asked for; the context has " +
                                       std::to_string(options.n_sequences));
  }
}

void check_batch(const Batch& batch, const ExecutorOptions& options, std::span<const int64_t> n_positions,
                 BatchShape& shape) {
  const size_t n = batch.tokens.size();
  if (n > static_cast<size_t>(options.n_batch_max) || batch.positions.size() != n || batch.outputs.size() != n ||
      (!batch.sequences.empty() && batch.sequences.size() != n)) {
    throw Error(Errc::bad_request,
                "a batch of " + std::to_string(n) + " tokens with " + std::to_string(batch.positions.size()) +
                    " positions and " + std::to_string(batch.outputs.size()) + " output marks; at most " +
                    std::to_string(options.n_batch_max) + " tokens, and as many of the others, are possible");
  }
  shape.n_positions.assign(n_positions.begin(), n_positions.end());
  shape.selected.clear();
  shape.token_runs.clear();
  for (size_t t = 0; t < n; ++t) {
    const int64_t sequence = batch.sequences.empty() ? 0 : batch.sequences[t];
    check_sequence(sequence, options);
    int64_t& expected = shape.n_positions[static_cast<size_t>(sequence)];
    if (batch.positions[t] != expected || expected >= options.n_ctx) {
      throw Error(Errc::bad_request, "position " + std::to_string(batch.positions[t]) + " of sequence " +
                                         std::to_string(sequence) + " cannot be run: it holds " +
                                         std::to_string(expected) + " of " + std::to_string(options.n_ctx) +
                                         " positions of the context");
    }
    if (t == 0 || shape.token_runs.back().sequence != sequence) {
      shape.token_runs.push_back({static_cast<int64_t>(t), 0, sequence, expected});
    }
    ++shape.token_runs.back().n;
    ++expected;
    if (batch.outputs[t] == 0) continue;
    if (shape.selected.size() == static_cast<size_t>(options.n_outputs_max)) {
      throw Error(Errc::bad_request, "the logits of more than " + std::to_string(options.n_outputs_max) +
                                         " tokens of one batch were asked for; the context was made for that many");
    }
    shape.selected.push_back(static_cast<int64_t>(t));
  }
}

void check_whole(const BatchShape& shape) {
  for (size_t i = 0; i < shape.token_runs.size(); ++i) {
    const TokenRun& run = shape.token_runs[i];
    const auto same = [&](const TokenRun& other) { return other.sequence == run.sequence; };
    const bool goes_on =
        std::any_of(shape.token_runs.begin() + static_cast<std::ptrdiff_t>(i) + 1, shape.token_runs.end(), same);
    if (run.position == 0 && !goes_on) continue;
    throw Error(Errc::bad_request, "an encoder's tokens see one another: sequence " + std::to_string(run.sequence) +
                                       " needs to be run whole, in one run from position 0 on");
  }
}

}  // namespace assay::ops
