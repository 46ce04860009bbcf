// See word_piece.h.
#include "text/encoders/word_piece.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "assay/error.h"
#include "base/utf8.h"

namespace assay::text {
namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581
constexpr size_t kWordCharactersMax = 100;

utf8proc_category_t category(int32_t c) noexcept { return utf8proc_category(c); }

bool is_blank(int32_t c) noexcept {
  const utf8proc_category_t of = category(c);
  return c == '\t' || c == '\n' || c == '\r' || of == UTF8PROC_CATEGORY_ZS || of == UTF8PROC_CATEGORY_ZL ||
         of == UTF8PROC_CATEGORY_ZP;
}

// Dropped from a text: other characters of categories C, and what stands for broken ones.
bool is_dropped(int32_t c) noexcept {
  const utf8proc_category_t of = category(c);
  const bool is_other = of == UTF8PROC_CATEGORY_CC || of == UTF8PROC_CATEGORY_CF || of == UTF8PROC_CATEGORY_CN ||
                        of == UTF8PROC_CATEGORY_CO || of == UTF8PROC_CATEGORY_CS;
  return c == 0 || c == 0xFFFD || (is_other && c != '\t' && c != '\n' && c != '\r');
}

bool is_punctuation(int32_t c) noexcept {
  const utf8proc_category_t of = category(c);
  const bool is_ascii = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  return is_ascii || (of >= UTF8PROC_CATEGORY_PC && of <= UTF8PROC_CATEGORY_PO);
}

// Ideographs, each a word of its own.
bool is_ideograph(int32_t c) noexcept {
  constexpr struct {
    int32_t first, last;
  } kRanges[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                 {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const auto& range) { return c >= range.first && c <= range.last; });
}

// Code points; broken bytes are left out, as U+FFFD is.
std::vector<int32_t> cleaned(std::string_view text) {
  std::vector<int32_t> points;
  for (size_t i = 0; i < text.size();) {
    const base::Char c = base::char_at(text, i);
    i += static_cast<size_t>(c.length);
    const auto point = static_cast<int32_t>(c.code);
    if (c.state == base::CharState::whole && !is_dropped(point)) points.push_back(point);
  }
  return points;
}

// Canonical decomposition without the marks, in lower case.
std::vector<int32_t> lowered(const std::vector<int32_t>& points) {
  std::string text;
  for (const int32_t c : points) base::append_utf8(text, static_cast<uint32_t>(c));
  std::vector<utf8proc_int32_t> parts(text.size() * 4 + 4);  // no character has more parts than 4 for each of its bytes
  const utf8proc_ssize_t n = utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                static_cast<utf8proc_ssize_t>(text.size()), parts.data(),
                                                static_cast<utf8proc_ssize_t>(parts.size()),
                                                static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));
  if (n < 0 || n > static_cast<utf8proc_ssize_t>(parts.size()))
    throw Error(Errc::bad_request, "a text cannot be decomposed into letters and accents");
  std::vector<int32_t> out;
  for (const utf8proc_int32_t c : std::span(parts).first(static_cast<size_t>(n))) {
    if (category(c) != UTF8PROC_CATEGORY_MN) out.push_back(utf8proc_tolower(c));
  }
  return out;
}

bool has_capital(std::string_view text) noexcept {
  return std::any_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

WordPieceEncoder::WordPieceEncoder(const Vocabulary& vocabulary, TokenId unknown)
    : vocabulary_(vocabulary), unknown_(unknown) {
  for (TokenId id = 0; id < vocabulary.size() && lowers_; ++id) {
    const std::string_view text = vocabulary.text(id);
    const bool is_marker = text.starts_with('[') && text.ends_with(']');  // [CLS], [unused1]
    lowers_ = vocabulary.kind(id) != TokenKind::normal || is_marker || !has_capital(text);
  }
}

std::vector<std::string> bert_words(std::string_view text, bool lowers) {
  std::vector<int32_t> points = cleaned(text);
  if (lowers) points = lowered(points);
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const int32_t c : points) {
    const bool stands_alone = is_punctuation(c) || is_ideograph(c);
    if (stands_alone || is_blank(c)) end_word();
    if (is_blank(c)) continue;
    base::append_utf8(word, static_cast<uint32_t>(c));
    if (stands_alone) end_word();
  }
  end_word();
  return words;
}

void WordPieceEncoder::encode(std::string_view text, bool, std::vector<TokenId>& out) const {
  for (const std::string& word : bert_words(text, lowers_)) append_word(word, out);
}

// Control and unknown tokens are no pieces of text, however it is spelled.
TokenId WordPieceEncoder::find_piece(std::string_view text) const noexcept {
  const TokenId id = vocabulary_.find_id(text);
  if (id < 0) return -1;
  const TokenKind kind = vocabulary_.kind(id);
  return kind == TokenKind::control || kind == TokenKind::unknown ? -1 : id;
}

void WordPieceEncoder::append_word(std::string_view word, std::vector<TokenId>& out) const {
  const auto begins_character = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  if (static_cast<size_t>(std::count_if(word.begin(), word.end(), begins_character)) > kWordCharactersMax)
    return out.push_back(unknown_);
  const std::string marked =
      std::string(kWordMark) + std::string(word);  // the first piece is looked for behind the mark
  const size_t n_before = out.size();
  for (size_t begin = 0; begin < marked.size();) {
    size_t end = marked.size();
    const size_t shortest = begin == 0 ? kWordMark.size() : begin;
    TokenId id = -1;
    while (end > shortest && (id = find_piece(std::string_view(marked).substr(begin, end - begin))) < 0) {
      do --end;
      while (end > shortest && !begins_character(marked[end]));
    }
    if (id < 0) {
      out.resize(n_before);
      return out.push_back(unknown_);
    }
    out.push_back(id);
    begin = end;
  }
}

void WordPieceEncoder::append_bytes(TokenId id, std::string& out) const {
  std::string_view text = vocabulary_.text(id);
  if (text.starts_with(kWordMark)) {
    out += ' ';
    text.remove_prefix(kWordMark.size());
  }
  out += text;
}

}  // namespace assay::text
