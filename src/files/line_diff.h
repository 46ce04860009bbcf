// Two lists of lines, and what turns one into the other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay::files {

// "-line" and "+line" of the shortest way from a to b by whole lines, as far as n_max of them, then "...". Long lists
// whose differing middle is beyond a limit are told as removed and put back whole.
std::vector<std::string> line_diff(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b,
                                   size_t n_max);

std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace assay::files
