// Reads memory and does nothing else: what a product over weights is held against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace assay::bench {

// Whole pairs of lines of 64 bytes; what is left behind the last pair is not read. By the widest loads that the
// processor has: of what lies in a cache their number binds.
#if defined(__x86_64__)
[[gnu::target_clones("avx512f", "avx2", "default")]]
#endif
inline void
read_bytes(const std::byte* begin, const std::byte* end) {
  using Line [[gnu::vector_size(64)]] = int64_t;
  Line a{}, b{};
  for (; begin + 128 <= end; begin += 128) {
    Line first, second;
    std::memcpy(&first, begin, 64);
    std::memcpy(&second, begin + 64, 64);
    a ^= first, b ^= second;
  }
  a ^= b;
  asm volatile("" : : "m"(a));
}

}  // namespace assay::bench
