// Reads the binary facts of tests/data: little-endian numbers and strings in a row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "support/content.h"

namespace assay::test {

inline std::string read_file(const std::filesystem::path& path) {
  if (!std::ifstream(path)) throw std::runtime_error("cannot read " + path.string());
  return content(path);
}

class ByteReader {
 public:
  explicit ByteReader(const std::filesystem::path& path) : bytes_(read_file(path)) {}

  bool at_end() const { return at_ == bytes_.size(); }
  uint32_t u8() { return static_cast<uint8_t>(bytes_.at(at_++)); }
  uint32_t u16() {
    const uint32_t low = u8();
    return low | (u8() << 8);
  }
  uint32_t u32() {
    const uint32_t low = u16();
    return low | (u16() << 16);
  }
  std::string string(size_t n_bytes) {
    if (bytes_.size() - at_ < n_bytes) throw std::runtime_error("a file in tests/data ends too soon");
    at_ += n_bytes;
    return bytes_.substr(at_ - n_bytes, n_bytes);
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

}  // namespace assay::test
