// Philox 4x32-10: four random words as a pure function of a counter and a key. A draw is keyed by
// what it is for, not by how many came before. Source: Salmon, Moraes, Dror and Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace assay::engine {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

struct Draws {
  double token;  // in [0, 1), 53 bits
  double xtc;    // in [0, 1), 53 bits, independent of token
};

inline Draws draws(uint64_t seed, uint64_t request, uint64_t position) noexcept {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto w = philox4x32({low(position), high(position), low(request), high(request)}, {low(seed), high(seed)});
  const auto unit = [](uint32_t a, uint32_t b) {
    return static_cast<double>(((uint64_t{a} << 32) | b) >> 11) * 0x1p-53;
  };
  return {unit(w[0], w[1]), unit(w[2], w[3])};
}

}  // namespace assay::engine
