// Regular expressions of ECMA-262, the part of them that is regular: as a network of characters, which becomes one of
// bytes inside a JSON string.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "constraint/json_parts.h"

namespace assay::constraint {

inline constexpr int kPatternDepthMax = 64;

// State 0 is the beginning, `end` the one end.
struct PatternNetwork {
  struct Edge {
    CodePoints on;
    int32_t to = 0;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<int32_t> jumps;
  };
  std::vector<State> states;
  int32_t end = 0;
};

// Texts in which the pattern is found. Error(bad_request) for what is no pattern, and, by name, for what is not served
// (look-around, back-references, word boundaries, properties of characters).
PatternNetwork parse_pattern(std::string_view pattern);

// A string in quotes that the pattern is found in and that has least to most characters.
StateId pattern_string(NetworkBuilder& net, JsonParts& parts, StateId from, const PatternNetwork& pattern,
                       int64_t least, std::optional<int64_t> most);

// The pattern of a format; empty: it is none that is served.
std::string_view format_pattern(std::string_view format);

}  // namespace assay::constraint
