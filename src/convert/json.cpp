// See json.h.
#include "convert/json.h"

#include <fmt/format.h>

#include <charconv>

#include "assay/error.h"
#include "base/shown.h"
#include "base/utf8.h"

namespace assay::converting {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

}  // namespace

void JsonCursor::fail(const std::string& problem) const {
  throw Error(Errc::bad_file, fmt::format("{}: byte {}: {}", what_, at_, problem));
}

std::string JsonCursor::shown_key(const std::string& key) { return base::shown(key); }

void JsonCursor::blanks() noexcept {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
    ++at_;
}

char JsonCursor::peek() {
  blanks();
  if (at_ == text_.size()) fail("the JSON ends here, where a value is due");
  const char c = text_[at_];
  if (c != '{' && c != '[' && c != '"' && c != 't' && c != 'f' && c != 'n' && c != 'I' && c != '-' && !is_digit(c))
    fail("no JSON value begins here");
  return c;
}

void JsonCursor::expect(char c) {
  blanks();
  if (at_ == text_.size() || text_[at_] != c) fail(fmt::format("needs '{}'", c));
  ++at_;
}

bool JsonCursor::open(char bracket) {
  if (peek() != bracket) fail(bracket == '{' ? "needs an object" : "needs an array");
  ++at_;
  if (++depth_ > kDepthMax) fail(fmt::format("is nested deeper than {} values", kDepthMax));
  blanks();
  const char closing = bracket == '{' ? '}' : ']';
  if (at_ < text_.size() && text_[at_] == closing) {
    ++at_;
    --depth_;
    return false;
  }
  return true;
}

bool JsonCursor::goes_on(char bracket) {
  blanks();
  if (at_ == text_.size()) fail(fmt::format("the JSON ends before a '{}'", bracket));
  const char c = text_[at_++];
  if (c == ',') return true;
  if (c != bracket) {
    --at_;
    fail(fmt::format("needs ',' or '{}'", bracket));
  }
  --depth_;
  return false;
}

void JsonCursor::word(std::string_view expected) {
  if (text_.substr(at_, expected.size()) != expected) fail(fmt::format("needs {}", expected));
  at_ += expected.size();
}

JsonNumber JsonCursor::number() {
  const char first = peek();
  if (first != '-' && !is_digit(first)) fail("needs a number");
  const size_t begin = at_;
  const auto digits = [&] {
    if (at_ == text_.size() || !is_digit(text_[at_])) fail("a number needs a digit here");
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  };
  if (text_[at_] == '-') ++at_;
  const size_t whole = at_;
  digits();
  if (text_[whole] == '0' && at_ > whole + 1) fail("a number begins with a 0");
  bool is_integer = true;
  if (at_ < text_.size() && text_[at_] == '.') {
    is_integer = false;
    ++at_;
    digits();
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    is_integer = false;
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    digits();
  }
  JsonNumber number;
  const char* const from = text_.data() + begin;
  const char* const to = text_.data() + at_;
  if (is_integer) {
    int64_t integer = 0;
    if (std::from_chars(from, to, integer).ec == std::errc{}) number.integer = integer;
  }
  if (std::from_chars(from, to, number.value).ec != std::errc{}) fail("a number that no double holds");
  return number;
}

bool JsonCursor::boolean() {
  const char c = peek();
  if (c != 't' && c != 'f') fail("needs true or false");
  word(c == 't' ? "true" : "false");
  return c == 't';
}

void JsonCursor::infinity() {
  peek();
  word("Infinity");
}

void JsonCursor::null() {
  peek();
  word("null");
}

uint32_t JsonCursor::hex4() {
  uint32_t code = 0;
  if (text_.size() - at_ < 4) fail("an escape is cut short");
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, code, 16);
  if (error != std::errc{} || end != text_.data() + at_ + 4) fail("\\u needs four hexadecimal digits");
  at_ += 4;
  return code;
}

void JsonCursor::escape(std::string& out) {
  if (at_ == text_.size()) fail("a string is cut short");
  switch (const char c = text_[at_++]) {
    case '"':
    case '\\':
    case '/': out += c; return;
    case 'b': out += '\b'; return;
    case 'f': out += '\f'; return;
    case 'n': out += '\n'; return;
    case 'r': out += '\r'; return;
    case 't': out += '\t'; return;
    case 'u': break;
    default: fail("an escape that JSON has not");
  }
  uint32_t code = hex4();
  if (code >= 0xDC00 && code < 0xE000) fail("a surrogate stands alone");
  if (code >= 0xD800 && code < 0xDC00) {
    if (text_.substr(at_, 2) != "\\u") fail("a surrogate stands alone");
    at_ += 2;
    const uint32_t low = hex4();
    if (low < 0xDC00 || low >= 0xE000) fail("a surrogate stands alone");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  base::append_utf8(out, code);
}

void JsonCursor::string(std::string& out) {
  out.clear();
  if (peek() != '"') fail("needs a string");
  ++at_;
  while (true) {
    size_t end = at_;
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\\' &&
           static_cast<unsigned char>(text_[end]) >= 0x20)
      ++end;
    out.append(text_, at_, end - at_);
    at_ = end;
    if (at_ == text_.size()) fail("a string is cut short");
    const char c = text_[at_++];
    if (c == '"') break;
    if (c != '\\') fail("a control character in a string");
    escape(out);
  }
  if (!base::is_utf8(out)) fail("a string that is no UTF-8");
}

void JsonCursor::skip() {
  std::string unused;
  switch (peek()) {
    case '{':
      if (!open('{')) return;
      do {
        string(unused);
        expect(':');
        skip();
      } while (goes_on('}'));
      return;
    case '[': array([&] { skip(); }); return;
    case '"': string(unused); return;
    case 't':
    case 'f': boolean(); return;
    case 'n': null(); return;
    case 'I': infinity(); return;
    default: number();
  }
}

void JsonCursor::end() {
  blanks();
  if (at_ != text_.size()) fail("something follows the JSON value");
}

Json Json::read(JsonCursor& in) {
  switch (in.peek()) {
    case '{': {
      Object members;
      in.object([&](const std::string& key) { members.emplace_back(key, read(in)); });
      return of(std::move(members));
    }
    case '[': {
      Array elements;
      in.array([&] { elements.push_back(read(in)); });
      return of(std::move(elements));
    }
    case '"': return of(in.string());
    case 't':
    case 'f': return of(in.boolean());
    case 'n': in.null(); return {};
    case 'I': in.infinity(); return of(std::string("Infinity"));
    default: return of(in.number());
  }
}

Json Json::parse(std::string_view text, std::string_view what) {
  JsonCursor in(text, what);
  Json value = read(in);
  in.end();
  return value;
}

const Json* Json::find(std::string_view key) const noexcept {
  if (const Object* members = object()) {
    for (const auto& [name, value] : *members) {
      if (name == key) return &value;
    }
  }
  return nullptr;
}

std::string_view Json::text(std::string_view key) const noexcept {
  const Json* member = find(key);
  return member != nullptr && member->string() != nullptr ? std::string_view(*member->string()) : std::string_view();
}

bool Json::flag(std::string_view key) const noexcept {
  const Json* member = find(key);
  return member != nullptr && member->boolean() != nullptr && *member->boolean();
}

void Json::set(std::string key, Json value) {
  if (is_null()) value_ = Object{};
  for (auto& [name, old] : std::get<Object>(value_)) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  std::get<Object>(value_).emplace_back(std::move(key), std::move(value));
}

std::string Json::shown() const {
  if (is_null()) return "null";
  if (const bool* b = boolean()) return *b ? "true" : "false";
  if (const JsonNumber* n = number()) return n->integer ? fmt::format("{}", *n->integer) : fmt::format("{}", n->value);
  if (const std::string* s = string()) return base::shown(*s);
  if (const Array* a = array())
    return a->size() == 1 ? fmt::format("[{}]", (*a)[0].shown()) : fmt::format("an array of {}", a->size());
  return fmt::format("an object of {}", object()->size());
}

}  // namespace assay::converting
