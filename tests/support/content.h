// A file's bytes, as the tests compare them.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace assay::test {

inline std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();  // by blocks: a byte at a time takes ten times as long without optimisation
  return std::move(bytes).str();
}

}  // namespace assay::test
