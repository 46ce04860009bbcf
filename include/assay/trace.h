// trace: what every op of a run computed, as statistics or as a dump (docs/dump-format.md). Observing changes no bit.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/context.h"

namespace assay {

struct TraceOptions {
  ContextOptions context;
  std::string ops;                        // an expression (PCRE2) that an op's whole name must match; empty: all
  int32_t layer_first = -1, layer_last = INT32_MAX;  // -1: also the ops outside the layers
  std::optional<std::pair<int64_t, int64_t>> positions;  // first and last that are shown; all are run
  int64_t n_first = 4;                    // values shown of each row
  bool histogram = false;
  std::string dump_path;                  // empty: none
};

struct OpTrace {
  std::string op, kind;
  int32_t layer = -1;
  int64_t n_rows = 0, width = 0;  // of the rows shown
  double mean = 0, rms = 0, smallest = 0, largest = 0;
  int64_t n_nan = 0, n_infinite = 0, n_zero = 0;
  std::vector<double> first;                // of the first row shown
  std::array<int64_t, 16> histogram{};      // of log2 of the magnitude in steps of 2, from 2^-24 (and below) to 2^6 (and above)
};

struct Trace {
  std::vector<TokenId> ids;
  std::vector<OpTrace> ops;  // in the order they ran
  std::string kv_digest;     // equal to that of a run that was not traced
  std::string to_text() const;
  std::string to_json() const;
};

// Runs the tokens in a context of its own. Error(bad_request) for an expression that is none, or ids that do not fit.
Trace trace_model(std::shared_ptr<const Model> model, std::span<const TokenId> ids, const TraceOptions& options = {});

}  // namespace assay
