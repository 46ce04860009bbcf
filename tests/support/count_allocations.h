// Counts what the program allocates; the sanitizers still see every malloc. To be included by one file of a program.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace assay::test {
inline std::atomic<int64_t> n_allocations{0};
}

[[gnu::noinline]] void* operator new(size_t bytes) {
  ++assay::test::n_allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++assay::test::n_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
