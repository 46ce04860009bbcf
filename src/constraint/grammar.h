// llama.cpp's GBNF as a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "constraint/network.h"

namespace assay::constraint {

inline constexpr size_t kGrammarBytesMax = 64 << 10;
inline constexpr int64_t kGrammarRulesMax = 10'000;
inline constexpr int kGrammarDepthMax = 64;
inline constexpr int64_t kGrammarRepeatsMax = 10'000;

// Error(bad_request) with the line and what stands there.
Network grammar_network(std::string_view gbnf);

}  // namespace assay::constraint
