// What the table of kernels asks of a GPU: facts alone, so that kernels are chosen, and the choice is tested, on
// machines without one.
#pragma once

#include <span>
#include <string_view>

namespace assay::backend::cuda {

struct Card {
  std::string_view name;
  int major = 0, minor = 0;  // compute capability
  int n_multiprocessors = 0;
  int shared_bytes_max = 0;      // of a block of threads
  int code = 0;                  // compute capability, times ten, that what runs on it was compiled for
  bool has_tensor_maps = false;  // its driver makes maps for the copy engine

  // Kernels of sm_90a.
  constexpr bool is_hopper() const noexcept { return major == 9 && minor == 0; }
  // Those that the copy engine fills, as well.
  constexpr bool has_groups() const noexcept { return is_hopper() && has_tensor_maps; }
  // Programmatic dependent launch and clusters, in kernels made for every card.
  constexpr bool has_clusters() const noexcept { return code >= 90; }
  constexpr bool has_clusters_of_16() const noexcept { return is_hopper() && has_clusters(); }  // others: eight
};

// Cards by name ("h200"), for plans made where there is none; null for others. The first of the list is the default.
std::span<const Card> known_cards() noexcept;
const Card* find_card(std::string_view name) noexcept;

}  // namespace assay::backend::cuda
