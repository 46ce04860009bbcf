// A file's bytes, as the tests compare them.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace assay::test {

inline std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace assay::test
