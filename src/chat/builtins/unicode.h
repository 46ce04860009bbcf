// Characters as Python's str knows them: code points of UTF-8 text, their kinds and cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace assay::chat {

int64_t count_points(std::string_view text) noexcept;
// The code point that starts at text[offset]; offset moves behind it. The text must be valid UTF-8.
char32_t next_point(std::string_view text, size_t& offset) noexcept;
// Offset of the code point before offset (which must not be 0).
inline size_t previous_offset(std::string_view text, size_t offset) noexcept {
  do --offset;
  while (offset > 0 && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
  return offset;
}

bool is_space(char32_t c) noexcept;
bool is_line_break(char32_t c) noexcept;  // where splitlines() splits
bool is_alpha(char32_t c) noexcept;
bool is_decimal(char32_t c) noexcept;
bool is_digit(char32_t c) noexcept;
bool is_numeric(char32_t c) noexcept;
bool is_upper(char32_t c) noexcept;
bool is_lower(char32_t c) noexcept;
bool is_title(char32_t c) noexcept;
bool is_printable(char32_t c) noexcept;
inline bool is_cased(char32_t c) noexcept { return is_upper(c) || is_lower(c) || is_title(c); }
bool is_case_ignorable(char32_t c) noexcept;
int decimal_value(char32_t c) noexcept;  // of a decimal digit of any script, else -1
inline bool is_word(char32_t c) noexcept { return c == '_' || is_alpha(c) || is_numeric(c); }  // \w of Python's re

enum class Case { upper, lower, title };
void append_case(std::string& to, char32_t c, Case which);  // one code point may become up to three

}  // namespace assay::chat
