// Cards whose plans can be shown anywhere. Multiprocessors and shared memory: NVIDIA's data sheets and the CUDA C++
// Programming Guide, table "Technical Specifications per Compute Capability".
#include "backend/cuda/kernels/card.h"

#include <algorithm>

namespace assay::backend::cuda {
namespace {

constexpr Card kCards[] = {
    {"h200", 9, 0, 132, 227 * 1024, 90, true},      {"h100", 9, 0, 132, 227 * 1024, 90, true},
    {"h100-pcie", 9, 0, 114, 227 * 1024, 90, true}, {"a100", 8, 0, 108, 163 * 1024, 80, false},
    {"rtx3090", 8, 6, 82, 99 * 1024, 80, false},    {"l40s", 8, 9, 142, 99 * 1024, 80, false},
    {"rtx4090", 8, 9, 128, 99 * 1024, 80, false},
};

}  // namespace

std::span<const Card> known_cards() noexcept { return kCards; }

const Card* find_card(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kCards, name, &Card::name);
  return found == std::end(kCards) ? nullptr : found;
}

}  // namespace assay::backend::cuda
