// How much of a long test runs. With ASSAY_EXHAUSTIVE in the environment: all of it; otherwise a share that every
// change can wait for.
#pragma once

#include <cstdlib>
#include <utility>

namespace assay::test {

inline bool is_exhaustive() { return std::getenv("ASSAY_EXHAUSTIVE") != nullptr; }

template <class T>
T rounds(T all, T share) {
  return is_exhaustive() ? all : share;
}

// Of what finds the same with fewer rounds where a sanitizer makes each of them ten times as long.
template <class T>
constexpr T unless_sanitized(T all, T share) {
#if defined(ASSAY_SANITIZED)
  return static_cast<void>(all), share;
#else
  return static_cast<void>(share), all;
#endif
}

// The same where CI emulates the processor as well.
template <class T>
constexpr T unless_slow(T all, T share) {
#if defined(__aarch64__)
  return static_cast<void>(all), share;
#else
  return unless_sanitized(std::move(all), std::move(share));
#endif
}

}  // namespace assay::test
