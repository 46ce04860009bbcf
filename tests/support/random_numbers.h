// Pseudo-random numbers for tests: the same on every machine, which the standard library's distributions are not; and a
// digest of results.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace assay::test {

// splitmix64
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // 0 <= result < n
  int below(int n) { return static_cast<int>((next() >> 33) % static_cast<uint64_t>(n)); }
  // Uniform in [-1, 1), 24 bits.
  float uniform() { return static_cast<float>(static_cast<int32_t>(next() >> 39)) * 0x1p-24f - 1.0f; }
  // Roughly normal with variance 1; exact sums of uniforms, so the same everywhere.
  float normal() {
    float sum = 0;
    for (int i = 0; i < 3; ++i) sum += uniform();
    return sum;
  }

 private:
  uint64_t state_;
};

// FNV-1a over bytes and the bits of floats: digests of results in tests.
class Digest {
 public:
  void add(std::byte byte) { hash_ = (hash_ ^ static_cast<uint64_t>(byte)) * 0x100000001B3u; }
  void add(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    for (int i = 0; i < 4; ++i) add(static_cast<std::byte>((bits >> (8 * i)) & 255));
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325u;
};

}  // namespace assay::test
