// Byte-level BPE vocabularies spell a byte as a printable character: those of Latin-1 that print
// stand for themselves, the other 68 bytes, in order, for U+0100, U+0101, ... Source: Radford et
// al. 2019 (GPT-2), encoder.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace assay::text {

class ByteAlphabet {
 public:
  constexpr ByteAlphabet() {
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      code_of_[byte] = prints ? byte : next++;
      byte_of_[code_of_[byte]] = static_cast<int16_t>(byte);
    }
  }

  constexpr uint32_t code(uint8_t byte) const { return code_of_[byte]; }
  constexpr std::optional<uint8_t> byte(uint32_t code) const {
    if (code >= byte_of_.size() || byte_of_[code] < 0) return std::nullopt;
    return static_cast<uint8_t>(byte_of_[code]);
  }

  std::string spell(std::string_view bytes) const {
    std::string out;
    out.reserve(bytes.size() * 2);
    for (const char byte : bytes) base::append_utf8(out, code(static_cast<uint8_t>(byte)));
    return out;
  }

 private:
  static constexpr std::array<int16_t, 324> none() {
    std::array<int16_t, 324> all{};
    for (auto& one : all) one = -1;
    return all;
  }
  std::array<uint32_t, 256> code_of_{};
  std::array<int16_t, 324> byte_of_ = none();
};

inline constexpr ByteAlphabet kByteAlphabet;

}  // namespace assay::text
