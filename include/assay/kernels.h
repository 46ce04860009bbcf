// The sets of kernels that a CPU may have.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace assay {

// Each needs what its name says of the processor. A set never changes a result.
enum class Kernels {
  best,       // the best that the machine can run
  reference,  // the scalar contract
  avx2,       // AVX2, FMA, F16C
  avx512,     // AVX-512 F, BW, VL, DQ, VNNI
  neon,       // 64-bit ARM with the dot product instructions (ARMv8.2)
  neon_i8mm,  // the same with the matrix instructions for bytes (ARMv8.6)
};

// By the names that flags have: "auto", "reference", "avx2", "avx512", "neon", "neon-i8mm".
std::string_view name(Kernels kernels) noexcept;
std::span<const Kernels> all_kernels() noexcept;  // of any machine, best first
Kernels parse_kernels(std::string_view text);     // Error(bad_request) that lists the names

// A set, and one row of its table of matrix products, for tests and measurements: the row's kernel runs every product
// that the row takes, whatever row would be chosen else. Empty: no row.
struct KernelChoice {
  Kernels set = Kernels::best;
  std::string row;
};
// "avx2", or "avx2:skinny of two", where hyphens may stand for the blanks. Error(bad_request) that lists the sets, or
// the set's rows.
KernelChoice parse_kernel_choice(std::string_view text);

}  // namespace assay
