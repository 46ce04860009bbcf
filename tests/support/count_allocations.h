// Counts what the program allocates, and lets one of the allocations fail; the sanitizers still see every malloc. To be
// included by one file of a program.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace assay::test {
inline std::atomic<int64_t> n_allocations{0};
inline thread_local int64_t n_until_failure =
    -1;  // of this thread's allocations the one that fails: 0 is the next; negative: none
}  // namespace assay::test

[[gnu::noinline]] void* operator new(size_t bytes) {
  ++assay::test::n_allocations;
  if (assay::test::n_until_failure >= 0 && assay::test::n_until_failure-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++assay::test::n_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
