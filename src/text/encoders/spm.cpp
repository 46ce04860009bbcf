// A text of n bytes takes O(n log n): the pairs wait in a queue, and one that no longer stands is
// dropped when it comes up.
#include "text/encoders/spm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "assay/error.h"
#include "base/utf8.h"
#include "text/encoders/pair_queue.h"

namespace assay::text {
namespace {

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte of a token spelled "<0xXX>", -1 for another text.
int byte_of(std::string_view text) noexcept {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = hex_digit(text[3]);
  const int low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Least for the highest score, and never 0.
uint32_t priority_of(float score) noexcept {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 counts as 0
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

}  // namespace

std::array<TokenId, 256> spelled_bytes(const Vocabulary& vocabulary) {
  std::array<TokenId, 256> tokens{};
  for (int byte = 0; byte < 256; ++byte) tokens[byte] = vocabulary.find_id(fmt::format("<0x{:02X}>", byte));
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.kind(id) != TokenKind::byte) continue;
    const int byte = byte_of(vocabulary.text(id));
    if (byte < 0) {
      throw Error(Errc::bad_file, fmt::format("token {} is a byte token but its text \"{}\" is not <0x00> to <0xFF>",
                                              id, vocabulary.text(id)));
    }
    tokens[byte] = id;
  }
  return tokens;
}

void append_spelled(const Vocabulary& vocabulary, TokenId id, std::string& out) {
  const std::string_view text = vocabulary.text(id);
  if (vocabulary.kind(id) == TokenKind::byte) {
    out.push_back(static_cast<char>(byte_of(text)));
    return;
  }
  size_t at = 0;
  for (size_t blank; (blank = text.find(kSpelledBlank, at)) != std::string_view::npos;
       at = blank + kSpelledBlank.size()) {
    out.append(text, at, blank - at).push_back(' ');
  }
  out.append(text, at);
}

TokenId find_piece(const Vocabulary& vocabulary, std::string_view text) noexcept {
  const TokenId id = vocabulary.find_id(text);
  if (id < 0) return -1;
  const TokenKind kind = vocabulary.kind(id);
  return kind == TokenKind::control || kind == TokenKind::unknown || kind == TokenKind::byte ? -1 : id;
}

SpmEncoder::SpmEncoder(const Vocabulary& vocabulary, SpmRules rules, TokenId unknown)
    : vocabulary_(vocabulary), rules_(rules), unknown_(unknown), byte_token_(spelled_bytes(vocabulary)) {
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    if (byte_token_[byte] < 0) byte_token_[byte] = vocabulary.find_id({&one, 1});
  }
}

std::string SpmEncoder::escaped(std::string_view text, bool opens) const {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + kSpelledBlank.size());
  if (rules_.add_space_prefix && opens) out += kSpelledBlank;
  const bool collapse = rules_.remove_extra_whitespaces;
  bool after_blank = true;
  for (const char c : text) {
    if (c != ' ') {
      out += c;
    } else if (!collapse || !after_blank) {
      out += kSpelledBlank;
    }
    after_blank = c == ' ';
  }
  if (collapse && after_blank && !text.empty() && text.find_first_not_of(' ') != std::string_view::npos) {
    out.resize(out.size() - kSpelledBlank.size());
  }
  return out;
}

struct SpmEncoder::Symbol {
  uint32_t begin = 0;
  uint32_t bytes = 0;  // 0: merged into the one before
  int32_t previous = -1;
  int32_t next = -1;
  uint64_t key = 0;  // under which the pair of this and the next symbol waits; 0: it is no token
};

void SpmEncoder::encode(std::string_view raw, bool opens, std::vector<TokenId>& out) const {
  const std::string text = escaped(raw, opens);
  if (text.empty()) return;
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = std::min<size_t>(base::bytes_of_lead(text[at]), text.size() - at);
    const auto i = static_cast<int32_t>(symbols.size());
    symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(bytes), i - 1, i + 1});
    at += bytes;
  }
  symbols.back().next = -1;

  const auto update_key = [&](int32_t left) {  // false: nothing to wait for
    Symbol& symbol = symbols[left];
    symbol.key = 0;
    if (symbol.next < 0) return false;
    const uint32_t bytes = symbol.bytes + symbols[symbol.next].bytes;
    const TokenId id = find_piece(vocabulary_, std::string_view(text).substr(symbol.begin, bytes));
    if (id >= 0) symbol.key = (uint64_t{priority_of(vocabulary_.score(id))} << 32) | static_cast<uint32_t>(left);
    return id >= 0;
  };
  PairQueue queue;
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) {
    if (update_key(i)) queue.add(symbols[i].key);
  }
  queue.sort_in();
  while (!queue.empty()) {
    const uint64_t key = queue.pop();
    const auto i = static_cast<int32_t>(key & 0xFFFFFFFFu);
    Symbol& left = symbols[i];
    if (left.key != key) continue;  // another pair stands there by now
    Symbol& right = symbols[left.next];
    left.bytes += right.bytes;
    left.next = right.next;
    right.bytes = 0;
    right.key = 0;
    if (left.next >= 0) symbols[left.next].previous = i;
    if (left.previous >= 0 && update_key(left.previous)) queue.push(symbols[left.previous].key);
    if (update_key(i)) queue.push(left.key);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    append_symbol(std::string_view(text).substr(symbols[i].begin, symbols[i].bytes), out);
  }
}

void SpmEncoder::append_symbol(std::string_view text, std::vector<TokenId>& out) const {
  if (const TokenId id = find_piece(vocabulary_, text); id >= 0) {
    out.push_back(id);
    return;
  }
  const size_t before = out.size();
  for (const char c : text) {
    const TokenId id = byte_token_[static_cast<uint8_t>(c)];
    if (id < 0) {
      if (unknown_ < 0) {
        throw Error(Errc::bad_request,
                    fmt::format("byte 0x{:02X} has no token, and the vocabulary has no unknown token",
                                static_cast<uint8_t>(c)));
      }
      out.resize(before);
      out.push_back(unknown_);  // one for the whole character
      return;
    }
    out.push_back(id);
  }
}

void SpmEncoder::append_bytes(TokenId id, std::string& out) const { append_spelled(vocabulary_, id, out); }

}  // namespace assay::text
