// See assay/kernels.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "assay/kernels.h"
#include "backend/cpu/linear/linear_table.h"

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

KernelChoice parse_kernel_choice(std::string_view text) {
  const size_t colon = text.find(':');
  KernelChoice choice;
  choice.set = parse_kernels(text.substr(0, colon));
  if (colon != std::string_view::npos) choice.row = backend::cpu::require_row(choice.set, text.substr(colon + 1));
  return choice;
}

namespace backend::cpu {

std::string_view require_row(Kernels set, std::string_view text) {
  const auto refuse = [&](const std::string& why) -> std::string_view {
    throw Error(Errc::bad_request, fmt::format("kernels: {}, found the row \"{}\"", why, text));
  };
  if (set == Kernels::best) return refuse("a row needs the name of its set before it, as in avx2:vector");
  std::string wanted(text);
  std::ranges::replace(wanted, '-', ' ');
  std::vector<std::string_view> known;
  for (const LinearRow& row : linear_table(set)) {
    if (row.name == wanted) return row.name;
    if (std::ranges::find(known, row.name) == known.end()) known.push_back(row.name);
  }
  if (known.empty()) return refuse(fmt::format("{} has no rows in this build", name(set)));
  return refuse(fmt::format("{} needs one of {}", name(set), fmt::join(known, ", ")));
}

}  // namespace backend::cpu
}  // namespace assay
