// See lexer.h.
#include "chat/lexer.h"

#include <algorithm>
#include <array>

#include "assay/error.h"
#include "base/utf8.h"
#include "chat/builtins/unicode.h"

namespace assay::chat {

void syntax_error(const std::string& source, size_t offset, const std::string& what) {
  offset = std::min(offset, source.size());
  const std::string_view before = std::string_view(source).substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  throw Error(Errc::bad_file, "chat template, line " + std::to_string(line) + ", column " +
                                  std::to_string(1 + count_points(before.substr(line_start))) + ": " + what);
}

std::string normalise_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

namespace {

struct Operator {
  std::string_view text;
  Tok type;
};
// The longer ones first.
constexpr std::array kOperators = {
    Operator{"//", Tok::floordiv}, Operator{"**", Tok::pow},     Operator{"==", Tok::eq},    Operator{"!=", Tok::ne},
    Operator{">=", Tok::ge},       Operator{"<=", Tok::le},      Operator{"+", Tok::add},    Operator{"-", Tok::sub},
    Operator{"/", Tok::div},       Operator{"*", Tok::mul},      Operator{"%", Tok::mod},    Operator{"~", Tok::tilde},
    Operator{"[", Tok::lbracket},  Operator{"]", Tok::rbracket}, Operator{"(", Tok::lparen}, Operator{")", Tok::rparen},
    Operator{"{", Tok::lbrace},    Operator{"}", Tok::rbrace},   Operator{">", Tok::gt},     Operator{"<", Tok::lt},
    Operator{"=", Tok::assign},    Operator{".", Tok::dot},      Operator{":", Tok::colon},  Operator{"|", Tok::pipe},
    Operator{",", Tok::comma},     Operator{";", Tok::semicolon}};

bool is_ascii_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// The end of the digits that begin at `at`, with single underscores between them.
size_t end_of_digits(std::string_view text, size_t at, bool (*is_one)(char)) {
  const auto is_digit = [&](size_t i) { return i < text.size() && is_one(text[i]); };
  while (is_digit(at) || (at < text.size() && text[at] == '_' && is_digit(at + 1))) ++at;
  return at;
}

// Of the integer that begins at `at`.
size_t end_of_integer(std::string_view text, size_t at) {
  const size_t end = at + 1;
  if (text[at] != '0') return end_of_digits(text, end, [](char c) { return is_ascii_digit(c); });
  const char base = end < text.size() ? static_cast<char>(text[end] | 0x20) : ' ';
  const auto is_hex = [](char c) { return is_ascii_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); };
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  const auto is_binary = [](char c) { return c == '0' || c == '1'; };
  if (base != 'x' && base != 'o' && base != 'b') return end_of_digits(text, end, [](char c) { return c == '0'; });
  const size_t last = base == 'x'   ? end_of_digits(text, end + 1, is_hex)
                      : base == 'o' ? end_of_digits(text, end + 1, is_octal)
                                    : end_of_digits(text, end + 1, is_binary);
  return last > end + 1 ? last : end;
}

// Of a floating-point literal that begins at `at`, or 0.
size_t end_of_real(std::string_view text, size_t at) {
  const auto digits = [&](size_t from) { return end_of_digits(text, from, [](char c) { return is_ascii_digit(c); }); };
  const size_t whole = digits(at);
  size_t end = whole;
  if (end + 1 < text.size() && text[end] == '.' && is_ascii_digit(text[end + 1])) end = digits(end + 1);
  size_t exponent = end;
  if (exponent < text.size() && (text[exponent] | 0x20) == 'e') {
    ++exponent;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && is_ascii_digit(text[exponent])) return digits(exponent);
  }
  return end > whole ? end : 0;
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(source), text_(source) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) outside();
    push(Tok::end, text_.size(), text_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(size_t offset, const std::string& what) const { syntax_error(source_, offset, what); }

  void push(Tok type, size_t from, size_t to) {
    for (; counted_ < from; ++counted_) line_ += text_[counted_] == '\n';
    tokens_.push_back({type, line_, text_.substr(from, to - from)});
  }

  bool starts(size_t at, std::string_view what) const { return text_.substr(at, what.size()) == what; }

  size_t skip_space(size_t at) const {
    for (size_t i = at; at < text_.size() && is_space(next_point(text_, i));) at = i;
    return at;
  }

  // Text up to the next tag, with the white space in front of the tag handled; then the tag.
  void outside() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= text_.size()) {
        push_data(at_, text_.size());
        at_ = text_.size();
        return;
      }
      const char c = text_[tag + 1];
      if (c == '{' || c == '%' || c == '#') break;
    }
    const char kind = text_[tag + 1];
    size_t inner = tag + 2;
    const char sign = inner < text_.size() && (text_[inner] == '-' || text_[inner] == '+') ? text_[inner] : ' ';
    if (sign != ' ') ++inner;
    push_data(at_, strip_before(at_, tag, sign, kind != '{'));
    at_ = inner;
    line_starting_ = false;
    if (kind == '#') return comment(tag);
    if (kind == '{') {
      push(Tok::variable_begin, tag, inner);
      return inside(Tok::variable_end);
    }
    if (const size_t body = raw_begin(inner)) return raw(tag, body);
    push(Tok::block_begin, tag, inner);
    inside(Tok::block_end);
  }

  void push_data(size_t from, size_t to) {
    if (to > from) push(Tok::data, from, to);
  }

  // Where the text [from, tag) ends once the tag's sign and lstrip_blocks have had their way.
  size_t strip_before(size_t from, size_t tag, char sign, bool is_block) const {
    if (sign == '-') {
      size_t end = tag;
      while (end > from) {
        const size_t before = previous_offset(text_, end);
        size_t i = before;
        if (!is_space(next_point(text_, i))) break;
        end = before;
      }
      return end;
    }
    if (sign == '+' || !is_block) return tag;
    const std::string_view text = text_.substr(from, tag - from);
    const size_t line_start = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
    if (line_start == 0 && !line_starting_) return tag;
    for (size_t i = from + line_start; i < tag;)
      if (!is_space(next_point(text_, i))) return tag;
    return from + line_start;
  }

  // Behind the end of a block or comment: "-" takes the white space that follows, otherwise one
  // line end goes (trim_blocks).
  void after_block(size_t at, char sign) {
    const size_t start = at;
    if (sign == '-')
      at = skip_space(at);
    else if (sign != '+' && at < text_.size() && text_[at] == '\n')
      ++at;
    line_starting_ = at > start && text_[at - 1] == '\n';
    at_ = at;
  }

  void comment(size_t tag) {
    const size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos && at_ < text_.size()) error(tag, "a comment without its end #}");
    if (end == std::string_view::npos) return;
    const char last = end > at_ ? text_[end - 1] : ' ';
    after_block(end + 2, last == '-' || last == '+' ? last : ' ');
  }

  // The offset behind "raw %}", or 0 where this is another tag.
  size_t raw_begin(size_t at) {
    at = skip_space(at);
    if (!starts(at, "raw")) return 0;
    at = skip_space(at + 3);
    if (starts(at, "-%}")) return skip_space(at + 3);
    return starts(at, "%}") ? at + 2 : 0;
  }

  void raw(size_t tag, size_t body) {
    line_starting_ = text_[body - 1] == '\n';
    for (size_t at = body;; ++at) {
      at = text_.find("{%", at);
      if (at == std::string_view::npos && body < text_.size()) error(tag, "a raw block without its end {% endraw %}");
      if (at == std::string_view::npos) {
        at_ = body;
        return;
      }
      size_t inner = at + 2;
      const char sign = inner < text_.size() && (text_[inner] == '-' || text_[inner] == '+') ? text_[inner] : ' ';
      inner = skip_space(inner + (sign != ' '));
      if (!starts(inner, "endraw")) continue;
      inner = skip_space(inner + 6);
      const char end_sign = starts(inner, "-%}") ? '-' : starts(inner, "+%}") ? '+' : ' ';
      inner += end_sign != ' ';
      if (!starts(inner, "%}")) continue;
      push_data(body, strip_before(body, at, sign, true));
      return after_block(inner + 2, end_sign);
    }
  }

  // The tokens of one {{ }} or {% %}. A closing tag is not looked for inside brackets.
  void inside(Tok closing) {
    const char* const close = closing == Tok::block_end ? "%}" : "}}";
    const size_t begin = at_;
    std::string brackets;
    for (;;) {
      at_ = skip_space(at_);
      if (at_ >= text_.size()) error(begin, std::string("a tag without its end ") + close);
      if (brackets.empty()) {
        const bool minus = text_[at_] == '-', plus = text_[at_] == '+' && closing == Tok::block_end;
        if (starts(at_ + (minus || plus), close)) {
          push(closing, at_, at_ + 2);
          const size_t end = at_ + 2 + (minus || plus);
          if (closing == Tok::block_end || minus) return after_block(end, minus ? '-' : plus ? '+' : ' ');
          line_starting_ = false;
          at_ = end;
          return;
        }
      }
      token(brackets);
    }
  }

  void token(std::string& brackets) {
    const char c = text_[at_];
    if (c == '\'' || c == '"') return string(c);
    if (is_ascii_digit(c)) return number();
    size_t end = at_;
    for (size_t i = at_; end < text_.size() && is_word_point(next_point(text_, i));) end = i;
    if (end > at_) {
      push(Tok::name, at_, end);
      at_ = end;
      return;
    }
    for (const Operator& op : kOperators) {
      if (!starts(at_, op.text)) continue;
      balance(c, brackets);
      push(op.type, at_, at_ + op.text.size());
      at_ += op.text.size();
      return;
    }
    size_t next = at_;
    next_point(text_, next);
    error(at_, "unexpected character '" + std::string(text_.substr(at_, next - at_)) + "'");
  }

  static bool is_word_point(char32_t c) { return is_word(c); }

  void balance(char c, std::string& brackets) {
    if (c == '(') brackets.push_back(')');
    if (c == '[') brackets.push_back(']');
    if (c == '{') brackets.push_back('}');
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets.empty()) error(at_, std::string("unexpected '") + c + "'");
    if (brackets.back() != c) error(at_, std::string("unexpected '") + c + "', expected '" + brackets.back() + "'");
    brackets.pop_back();
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) error(at_, "a string without its end");
    push(Tok::string, at_, end + 1);
    at_ = end + 1;
  }

  void number() {
    const size_t real_end = at_ > 0 && text_[at_ - 1] == '.' ? 0 : end_of_real(text_, at_);
    const size_t end = real_end ? real_end : end_of_integer(text_, at_);
    push(real_end ? Tok::real : Tok::integer, at_, end);
    at_ = end;
  }

  const std::string& source_;
  std::string_view text_;
  size_t at_ = 0;
  size_t counted_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(const std::string& source) { return Lexer(source).run(); }

std::string unescape(const Token& token, const std::string& source) {
  const std::string_view text = token.text.substr(1, token.text.size() - 2);
  const auto error = [&](const std::string& what) {
    syntax_error(source, static_cast<size_t>(text.data() - source.data()), what);
  };
  std::string out;
  out.reserve(text.size());
  const auto hex = [&](size_t from, size_t n) {
    char32_t value = 0;
    for (size_t i = from; i < from + n; ++i) {
      const char c = i < text.size() ? text[i] : ' ';
      const char lower = static_cast<char>(c | 0x20);
      if (is_ascii_digit(c))
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if (lower >= 'a' && lower <= 'f')
        value = value * 16 + static_cast<char32_t>(lower - 'a' + 10);
      else
        error("an escape in a string needs " + std::to_string(n) + " hexadecimal digits");
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) error("an escape in a string names no character");
    base::append_utf8(out, value);
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out.push_back(text[i]);
      continue;
    }
    const char c = text[++i];  // the lexer lets no string end in a backslash
    switch (c) {
      case '\n': break;
      case '\\':
      case '\'':
      case '"': out.push_back(c); break;
      case 'n': out.push_back('\n'); break;
      case 't': out.push_back('\t'); break;
      case 'r': out.push_back('\r'); break;
      case 'a': out.push_back('\a'); break;
      case 'b': out.push_back('\b'); break;
      case 'f': out.push_back('\f'); break;
      case 'v': out.push_back('\v'); break;
      case 'x':
        hex(i + 1, 2);
        i += 2;
        break;
      case 'u':
        hex(i + 1, 4);
        i += 4;
        break;
      case 'U':
        hex(i + 1, 8);
        i += 8;
        break;
      case 'N': error("\\N{...} in a string is not supported"); break;
      default:
        if (c < '0' || c > '7') {
          out.push_back('\\');
          out.push_back(c);
          break;
        }
        char32_t value = 0;
        size_t n = 0;
        for (; n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7'; ++n)
          value = value * 8 + static_cast<char32_t>(text[i + n] - '0');
        i += n - 1;
        base::append_utf8(out, value);
    }
  }
  return out;
}

const char* spelling(Tok type) noexcept {
  switch (type) {
    case Tok::data: return "template text";
    case Tok::variable_begin: return "{{";
    case Tok::variable_end: return "}}";
    case Tok::block_begin: return "{%";
    case Tok::block_end: return "%}";
    case Tok::name: return "name";
    case Tok::string: return "string";
    case Tok::integer: return "integer";
    case Tok::real: return "float";
    case Tok::end: return "end of template";
    default: break;
  }
  for (const Operator& op : kOperators)
    if (op.type == type) return op.text.data();
  return "?";
}

}  // namespace assay::chat
