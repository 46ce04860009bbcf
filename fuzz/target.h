// ASSAY_FUZZ_TARGET(NAME) { ... } is a target: what is done with any bytes, `data` and `size`. A fuzzer is a program of
// one target; the test of the corpora is one program of all (corpus_main.cpp), which finds them by their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string_view>

namespace assay::fuzz {

using Target = int (*)(const uint8_t* data, size_t size);

inline std::map<std::string_view, Target>& targets() {
  static std::map<std::string_view, Target> all;
  return all;
}

struct Registered {
  Registered(std::string_view name, Target target) { targets()[name] = target; }
};

inline void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace assay::fuzz

#if defined(ASSAY_FUZZ_CORPUS)
#define ASSAY_FUZZ_TARGET(name)                                                         \
  static int fuzz_##name(const uint8_t* data, size_t size);                             \
  static const assay::fuzz::Registered fuzz_##name##_is_registered(#name, fuzz_##name); \
  static int fuzz_##name(const uint8_t* data, size_t size)
#else
#define ASSAY_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#endif
