// UTF-8, strictly as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace assay::base {

inline constexpr uint32_t kReplacementChar = 0xFFFD;

enum class CharState {
  whole,      // a character
  broken,     // bytes that can never begin a character
  cut_short,  // the text ends inside what may still become a character
};

// What stands at a place in a text. length: of the character, or of the longest run of bytes that
// some character could begin with (at least 1), so that replacing each broken run by one U+FFFD
// gives what other decoders give.
struct Char {
  CharState state = CharState::broken;
  uint32_t code = kReplacementChar;
  int length = 1;
};

Char char_at(std::string_view text, size_t at) noexcept;  // at < text.size()
bool is_utf8(std::string_view text) noexcept;
void append_utf8(std::string& out, uint32_t code);

// Bytes of the character that this byte leads, whatever follows it: for texts that are UTF-8, or cut as if they were.
constexpr int bytes_of_lead(char lead) noexcept {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The text with every byte that is not part of a character replaced by U+FFFD (one for each byte,
// as llama.cpp does).
std::string repaired_utf8(std::string_view text);

}  // namespace assay::base
