// The next multiple of a number.
#pragma once

#include <cstdint>

namespace assay::base {

// n >= 0, multiple > 0; the sum of the two must fit.
constexpr int64_t round_up(int64_t n, int64_t multiple) noexcept { return (n + multiple - 1) / multiple * multiple; }

}  // namespace assay::base
