// The next multiple of a number.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/checked.h"

namespace assay::base {

// n >= 0, multiple > 0; the sum of the two must fit.
template <std::integral Integer>
constexpr Integer round_up(Integer n, std::type_identity_t<Integer> multiple) noexcept {
  return (n + multiple - 1) / multiple * multiple;
}

// Of a number from outside: nullopt where the result would wrap. multiple is not 0.
constexpr std::optional<uint64_t> checked_round_up(uint64_t n, uint64_t multiple) noexcept {
  const uint64_t rest = n % multiple;
  if (rest == 0) return n;
  return checked_add(n, multiple - rest);
}

}  // namespace assay::base
