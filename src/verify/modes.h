// The modes of our own engine that `--against` knows by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "assay/context.h"

namespace assay::verify {

struct Mode {
  ContextOptions options;
  int64_t n_chunk = 0;  // tokens per run; 0: as the others
};

// A name of with_mode (assay/context.h), or "chunks/N": `base` with that one thing changed.
// nullopt: no mode.
std::optional<Mode> parse_mode(std::string_view text, const ContextOptions& base);

std::string mode_names();  // for messages

// Error(bad_request) for a mode whose values verify cannot judge op by op: mode fast states a tolerance of its logits
// only.
void require_judged(const ContextOptions& options);

// Whether the two promise the same bits: the same numerics in all but kernels, threads and chunks.
bool promise_same_bits(const ContextOptions& a, const ContextOptions& b);

}  // namespace assay::verify
