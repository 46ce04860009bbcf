// How much of a long test runs. With ASSAY_EXHAUSTIVE in the environment: all of it; otherwise a share that every change can wait for.
#pragma once

#include <cstdlib>

namespace assay::test {

inline bool is_exhaustive() { return std::getenv("ASSAY_EXHAUSTIVE") != nullptr; }

template <class T>
T rounds(T share, T all) {
  return is_exhaustive() ? all : share;
}

}  // namespace assay::test
