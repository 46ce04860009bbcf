// See assay/kernels.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "assay/kernels.h"

namespace assay {
namespace {

constexpr std::array kAll{Kernels::best,   Kernels::reference, Kernels::avx2,
                          Kernels::avx512, Kernels::neon,      Kernels::neon_i8mm};

}  // namespace

std::string_view name(Kernels kernels) noexcept {
  switch (kernels) {
    case Kernels::best: return "auto";
    case Kernels::reference: return "reference";
    case Kernels::avx2: return "avx2";
    case Kernels::avx512: return "avx512";
    case Kernels::neon: return "neon";
    case Kernels::neon_i8mm: return "neon-i8mm";
  }
  return "?";
}

std::span<const Kernels> all_kernels() noexcept { return kAll; }

Kernels parse_kernels(std::string_view text) {
  std::vector<std::string_view> known;
  for (const Kernels kernels : kAll) {
    if (name(kernels) == text) return kernels;
    known.push_back(name(kernels));
  }
  throw Error(Errc::bad_request, fmt::format("kernels: needs one of {}, found \"{}\"", fmt::join(known, ", "), text));
}

}  // namespace assay
