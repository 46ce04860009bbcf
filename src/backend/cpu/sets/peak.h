// Loops of a kernel set's multiplying instructions on registers alone: how fast the processor could multiply if nothing
// were loaded, unpacked, scaled or stored. Benchmarks hold the products against it.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/cpu/linear/linear.h"

namespace assay::backend::cpu {

struct PeakLoop {
  std::string_view instructions;  // empty: the set has none
  int64_t multiply_adds = 0;      // of one step
  void (*run)(int64_t n_steps) noexcept = nullptr;
};

struct PeakLoops {
  PeakLoop bytes;   // products of bytes, summed in integers
  PeakLoop floats;  // fma of binary32
};
PeakLoops peak_loops(Kernels set) noexcept;

// Of the sets themselves, in files of their own instructions.
PeakLoops peak_loops_avx2() noexcept;
PeakLoops peak_loops_avx512() noexcept;

}  // namespace assay::backend::cpu
