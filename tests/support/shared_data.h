// Where tests find facts: in tests/data, or, of what is kept packed there, in the build folder.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace assay::test {

std::filesystem::path data(const std::string& name);    // of tests/data
std::filesystem::path shared(const std::string& name);  // of tests/data, packed or not

// The real models, where scripts/fetch-models put them (or ASSAY_MODELS says).
inline std::filesystem::path models() {
  if (const char* folder = std::getenv("ASSAY_MODELS")) return folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME")) return std::filesystem::path(cache) / "assay/models";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home ? home : "/root") / ".cache/assay/models";
}
inline std::filesystem::path smollm2() { return models() / "smollm2-135m-instruct-Q4_1.gguf"; }
inline std::filesystem::path gemma3() { return models() / "gemma3-270m-Q4_K_M.gguf"; }

}  // namespace assay::test

// In a test body: skips, and says why, where a file is missing. In CI (environment variable CI set) a missing file is a
// failure.
#define ASSAY_REQUIRE_FILE(path)                                   \
  do {                                                             \
    if (!std::filesystem::exists(path)) {                          \
      if (std::getenv("CI")) FAIL() << "needs " << (path);         \
      GTEST_SKIP() << "needs " << (path) << ", which is not here"; \
    }                                                              \
  } while (false)
