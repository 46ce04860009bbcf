// trace: what every op of a run computed, as statistics or as a dump (docs/trace.md, docs/dump-format.md). Observing
// changes no bit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/context.h"

namespace assay {

inline constexpr int kTraceBins = 16;

struct TraceOptions {
  std::string ops = {};  // an expression (PCRE2) that an op's whole name must match; empty: all
  std::optional<std::pair<int32_t, int32_t>> layers = {};  // first and last; none: all, and the ops outside the layers
  std::optional<std::pair<int64_t, int64_t>> positions =
      {};               // first and last that the statistics are of; all are run, and dumped
  int64_t n_first = 4;  // values kept of the first row shown
  bool histogram = false;
  std::string dump_path = {};            // of the ops chosen; empty: none
  std::string text = {};                 // the prompt, as the dump's header tells it
  std::function<bool()> cancelled = {};  // polled before every chunk: then the trace is of what was run
  std::function<void(int64_t done, int64_t total)> progress = {};  // in tokens, after every chunk
};

struct OpTrace {
  std::string op, kind;
  int32_t layer = -1;             // -1: outside the layers
  int64_t n_rows = 0, width = 0;  // of the rows shown: one a token; of experts one for each that the token goes to
  double mean = 0, rms = 0, smallest = 0,
         largest = 0;  // of the finite values, in double, row by row; NaN where there are none
  int64_t n_nan = 0, n_infinite = 0, n_zero = 0;
  std::vector<double> first;  // of the first row shown
  // Finite values but zeros, by magnitude: bin i counts 2^(2 i - 24) up to 2^(2 i - 22); the first also what is
  // smaller, the last what is larger.
  std::array<int64_t, kTraceBins> histogram{};
};

struct Trace {
  std::vector<TokenId> ids;
  std::vector<OpTrace> ops;  // in the order they ran
  bool has_histogram = false;
  std::string logits_digest, kv_digest;  // equal to those of a run that was not traced
  std::string to_text() const;           // a table; ends with a newline
};

// Clears the context and runs the tokens, with logits after each. Before any work: Error(bad_request) for an expression
// that is none or that no op's name matches, ranges that hold nothing, and ids that do not fit; Error(io) where the
// dump cannot be written.
Trace trace_run(Context& context, std::span<const TokenId> ids, const TraceOptions& options = {});

}  // namespace assay
