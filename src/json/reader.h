// JSON from outside, strictly: what the standard leaves to the reader is refused here, so that two readers can never
// see two things in one text.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string_view>

namespace assay::json_text {

struct Limits {
  int depth_max = 64;
  int64_t n_values_max = 1'000'000;
  std::string_view depth_raised_by = {};  // a flag
};

// Error(bad_request), beginning with `what`, for what is no JSON, invalid UTF-8, a byte order mark, a lone surrogate,
// two members of one name, a number that no double holds or an integer of more than 64 bits, and for what goes beyond a
// limit. Numbers are correctly rounded; members keep their order.
boost::json::value read(std::string_view text, std::string_view what, const Limits& limits = {});

}  // namespace assay::json_text
