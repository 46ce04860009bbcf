// Template source to tokens, by Jinja's rules with trim_blocks and lstrip_blocks on (as Hugging
// Face has them).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay::chat {

enum class Tok : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  add,
  sub,
  mul,
  div,
  floordiv,
  mod,
  pow,
  tilde,
  lparen,
  rparen,
  lbracket,
  rbracket,
  lbrace,
  rbrace,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  assign,
  dot,
  colon,
  comma,
  pipe,
  semicolon,
  end,
};

struct Token {
  Tok type = Tok::end;
  uint32_t line = 1;
  std::string_view text;  // into the normalised source; a string with its quotes
};

// Line ends become \n and one at the very end goes away, as Jinja does before it reads.
std::string normalise_source(std::string_view source);
// The tokens point into the source given. Error(bad_file) with line and column.
std::vector<Token> tokenize(const std::string& source);
// The characters that a string literal stands for.
std::string unescape(const Token& token, const std::string& source);
[[noreturn]] void syntax_error(const std::string& source, size_t offset, const std::string& what);
const char* spelling(Tok type) noexcept;

}  // namespace assay::chat
