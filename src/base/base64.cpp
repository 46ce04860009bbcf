// See base64.h.
#include "base/base64.h"

#include <cstdint>

namespace assay::base {

std::string base64(std::span<const std::byte> bytes) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = i; j < i + 3; ++j)
      group = group << 8 | (j < bytes.size() ? std::to_integer<uint32_t>(bytes[j]) : 0);
    for (size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : kLetters[group >> (18 - 6 * j) & 63];
  }
  return text;
}

}  // namespace assay::base
