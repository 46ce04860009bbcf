// See format.h.
#include "chat/builtins/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/utf8.h"
#include "chat/attributes.h"
#include "chat/builtins/numbers.h"
#include "chat/ops.h"
#include "chat/print.h"

namespace assay::chat {

namespace {

constexpr int64_t kWidthMax = 1 << 20;  // of one field; more is a mistake or an attack
constexpr int64_t kPrecisionMax = 1 << 12;

// How one value is to be written, whichever language asked.
struct Spec {
  std::string fill = " ";
  char align = 0;   // < > ^ = or 0: by type
  char sign = '-';  // + - or blank
  bool alternate = false;
  bool zero = false;
  bool commas = false;
  char separator = ',';
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

[[noreturn]] void bad_spec(const std::string& what) { fail("format: " + what); }

std::string grouped(const std::string& digits, char separator) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

std::string real_digits(double size, const Spec& spec) {
  if (std::isnan(size)) return "nan";
  if (std::isinf(size)) return "inf";
  if (spec.alternate) bad_spec("'#' with a float is not supported");
  const char type = static_cast<char>(spec.type | 0x20);
  if (spec.type == 0 && spec.precision < 0) return real_text(size);
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  const auto style = type == 'e'                       ? std::chars_format::scientific
                     : type == 'f' || spec.type == '%' ? std::chars_format::fixed
                                                       : std::chars_format::general;
  std::string out(static_cast<size_t>(precision) + 400, '\0');
  const double shown = spec.type == '%' ? size * 100.0 : size;
  const int digits = style == std::chars_format::general && precision == 0 ? 1 : precision;
  const auto result = std::to_chars(out.data(), out.data() + out.size(), shown, style, digits);
  out.resize(static_cast<size_t>(result.ptr - out.data()));
  if (spec.type == '%') out += "%";
  if (spec.type == 0 && out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

// Sign, prefix and digits of a number, padded to the width. The padding's origin is `own`.
void write_number(TextBuilder& out, bool minus, const std::string& prefix, std::string digits, const Spec& spec,
                  bool own) {
  const bool upper = spec.type >= 'A' && spec.type <= 'Z';
  if (upper)
    for (char& c : digits)
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  if (spec.commas) {
    const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = grouped(digits.substr(0, whole), spec.separator) + digits.substr(whole);
  }
  const std::string head = (minus ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "") + prefix;
  const int64_t missing = std::max<int64_t>(0, spec.width - static_cast<int64_t>(head.size() + digits.size()));
  const char align = spec.align ? spec.align : spec.zero ? '=' : '>';
  if (align == '=' && spec.commas && spec.zero && missing > 0)
    bad_spec("zero padding with a separator is not supported");
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : align == '>' ? missing : 0;
  const std::string fill = spec.zero && align == '=' && spec.fill == " " ? "0" : spec.fill;
  out.fill(left, fill, own);
  out.add(head, own);
  if (align == '=') out.fill(missing, fill, own);
  out.add(digits, own);
  if (align != '=') out.fill(missing - left, fill, own);
}

std::string digits_of(uint64_t size, int base) {
  char buffer[72];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), size, base);
  return {buffer, result.ptr};
}

void write_integer(TextBuilder& out, const Value& value, const Spec& spec, bool own) {
  if (value.is(Kind::big)) {
    if (spec.type != 'd' && spec.type != 0) bad_spec("an integer beyond 64 bits");
    const std::string& text = bytes_of(value);
    const bool negative_big = text[0] == '-';
    return write_number(out, negative_big, "", text.substr(negative_big), spec, own);
  }
  const int64_t number = value.as_integer();
  const bool minus = number < 0;
  const uint64_t size = minus ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const char type = static_cast<char>(spec.type | 0x20);
  const int base = type == 'x' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + spec.type : "";
  std::string digits = digits_of(size, base);
  if (spec.precision > static_cast<int64_t>(digits.size()))
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  write_number(out, minus, prefix, digits, spec, own);
}

void write_real(TextBuilder& out, double number, const Spec& spec, bool own) {
  const bool minus = std::signbit(number) && !std::isnan(number);
  write_number(out, minus, "", real_digits(std::fabs(number), spec), spec, own);
}

void write_string(TextBuilder& out, const Str& text, const Spec& spec, bool own) {
  const int64_t n = spec.precision >= 0 ? std::min(spec.precision, length(text)) : length(text);
  const int64_t missing = std::max<int64_t>(0, spec.width - n);
  const int64_t left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  out.fill(left, spec.fill, own);
  out.add(text, 0, offset_of(text, n));
  out.fill(missing - left, spec.fill, own);
}

Value one_character(Heap& heap, const Value& value) {
  if (value.is_string() && length(text_of(value)) == 1) return value;
  if (!value.is_integral()) bad_spec("'c' needs a number or one character");
  const int64_t code = value.as_integer();
  if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) bad_spec("'c' needs the number of a character");
  std::string bytes;
  base::append_utf8(bytes, static_cast<char32_t>(code));
  return make_text(heap, bytes, false);
}

// "..." % args
class Percent {
 public:
  Percent(Heap& heap, const Str& format, const Value& args)
      : heap_(heap), format_(format), text_(format.bytes), args_(args), out_(heap) {}

  Value run() {
    while (at_ < text_.size()) {
      const size_t percent = std::min(text_.find('%', at_), text_.size());
      out_.add(format_, at_, percent);
      at_ = percent;
      if (at_ < text_.size()) field();
    }
    const bool maps = args_.is(Kind::dict) || args_.is(Kind::list) || args_.is(Kind::range) || args_.is_undefined();
    const size_t n = args_.is(Kind::tuple) ? args_.as<Seq>().items.size() : maps ? used_ : 1;
    if (used_ < n) bad_spec("not all arguments were used");
    return out_.take(format_.markup);
  }

 private:
  char peek() const {
    if (at_ >= text_.size()) bad_spec("the format ends inside a field");
    return text_[at_];
  }

  Value next_argument() {
    if (args_.is(Kind::tuple)) {
      const auto& items = args_.as<Seq>().items;
      if (used_ >= items.size()) bad_spec("not enough arguments");
      return items[used_++];
    }
    if (used_++ > 0) bad_spec("not enough arguments");
    return args_;
  }

  int64_t size(int64_t max) {
    if (peek() == '*') {
      ++at_;
      const int64_t n = need_integer(next_argument(), "a width");
      if (n < -max || n > max) bad_spec("a width or precision beyond " + std::to_string(max));
      return n;
    }
    int64_t n = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      n = n * 10 + (peek() - '0');
      if (n > max) bad_spec("a width or precision beyond " + std::to_string(max));
    }
    return n;
  }

  void field() {
    const bool own = format_.own_at(at_);
    ++at_;
    std::optional<Value> named;
    if (peek() == '(') named = by_name();
    Spec spec;
    spec.align = '>';
    for (;; ++at_) {
      const char c = peek();
      if (c == '-')
        spec.align = '<';
      else if (c == '+')
        spec.sign = '+';
      else if (c == ' ' && spec.sign != '+')
        spec.sign = ' ';
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        spec.zero = true;
      else if (c != ' ')
        break;
    }
    spec.width = size(kWidthMax);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(0, size(kPrecisionMax));
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    spec.type = peek();
    ++at_;
    if (spec.type == '%') return out_.add("%", own);
    convert(named ? *named : next_argument(), spec, own);
  }

  Value by_name() {
    int depth = 1;
    const size_t from = ++at_;
    for (; depth > 0; ++at_) depth += (peek() == '(') - (peek() == ')');
    if (!args_.is(Kind::dict)) bad_spec("a named field needs a mapping");
    const Value* value = find_key(args_.as<Dict>(), std::string_view(text_).substr(from, at_ - 1 - from));
    if (!value) bad_spec("no argument named '" + text_.substr(from, at_ - 1 - from) + "'");
    used_ = std::max<size_t>(used_, 1);
    return *value;
  }

  void convert(const Value& value, Spec& spec, bool own) {
    switch (spec.type) {
      case 's':
      case 'r': {
        TextBuilder text(heap_);
        if (spec.type == 'r')
          write_repr(text, value);
        else
          write_text(text, value);
        Value shown = text.take(value.is_string() && spec.type == 's' && text_of(value).markup);
        if (format_.markup) shown = escape(heap_, text_of(shown));
        return write_string(out_, text_of(shown), spec, own);
      }
      case 'c': spec.precision = -1; return write_string(out_, text_of(one_character(heap_, value)), spec, own);
      case 'd':
      case 'i':
      case 'u': {
        spec.type = 'd';
        Value number = value;
        if (value.is(Kind::real)) {
          const auto whole = real_to_integer(value.as_real());
          if (!whole) bad_spec("%d of a float that has no 64-bit integer");
          number = Value::integer(*whole);
        }
        if (!number.is_integral() && !number.is(Kind::big))
          bad_spec(std::string("%d needs a number, not ") + type_name(value));
        return integer(number, spec, own);
      }
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral()) bad_spec(std::string("%") + spec.type + " needs an integer, not " + type_name(value));
        return integer(value, spec, own);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) bad_spec(std::string("%") + spec.type + " needs a number, not " + type_name(value));
        if (spec.zero && spec.align != '<') spec.align = std::isfinite(value.as_real()) ? '=' : '>';
        return write_real(out_, value.as_real(), spec, own);
      default: bad_spec(std::string("unsupported format character '") + spec.type + "'");
    }
  }

  void integer(const Value& value, Spec& spec, bool own) {
    if (spec.zero && spec.align != '<') spec.align = '=';
    write_integer(out_, value, spec, own);
  }

  Heap& heap_;
  const Str& format_;
  const std::string& text_;
  const Value& args_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t used_ = 0;
};

// "...".format(args)
class Brace {
 public:
  Brace(Heap& heap, const Str& format, const Args& args) : heap_(heap), format_(format), args_(args) {}

  Value run() {
    TextBuilder out(heap_);
    write(out, format_.bytes, 0, 0);
    return out.take(format_.markup);
  }

 private:
  // base: where `text` stands in the format, for the origin of its bytes.
  void write(TextBuilder& out, std::string_view text, size_t base, int depth) {
    if (depth > 1) bad_spec("fields are nested too deeply");
    for (size_t i = 0; i < text.size();) {
      const size_t brace = std::min(text.find_first_of("{}", i), text.size());
      out.add(format_, base + i, base + brace);
      if (brace == text.size()) return;
      i = brace + 1;
      if (i < text.size() && text[i] == text[brace]) {
        out.add(format_, base + brace, base + i);
        ++i;
        continue;
      }
      if (text[brace] == '}') bad_spec("a single '}'");
      size_t end = i;
      for (int open = 1; open > 0; ++end) {
        if (end >= text.size()) bad_spec("a '{' without its '}'");
        open += (text[end] == '{') - (text[end] == '}');
      }
      field(out, text.substr(i, end - 1 - i), base + i, depth);
      i = end;
    }
  }

  void field(TextBuilder& out, std::string_view text, size_t base, int depth) {
    heap_.step();
    // The name ends at the first ! or : that stands outside of [ ].
    size_t end = 0;
    for (bool inside = false; end < text.size(); ++end) {
      if (text[end] == '[') inside = true;
      if (text[end] == ']') inside = false;
      if (!inside && (text[end] == '!' || text[end] == ':')) break;
    }
    Value value = look_up(text.substr(0, end));
    char conversion = 0;
    if (end < text.size() && text[end] == '!') {
      conversion = end + 1 < text.size() ? text[end + 1] : ' ';
      end += 2;
      if ((conversion != 's' && conversion != 'r') || (end < text.size() && text[end] != ':'))
        bad_spec("unknown conversion behind '!'");
    }
    std::string spec;
    if (end < text.size()) {
      TextBuilder nested(heap_);
      write(nested, text.substr(end + 1), base + end + 1, depth + 1);
      spec = nested.bytes();
    }
    if (conversion == 's') value = to_text(heap_, value);
    if (conversion == 'r') {
      TextBuilder repr(heap_);
      write_repr(repr, value);
      value = repr.take();
    }
    if (format_.markup) value = escape(heap_, text_of(soft_text(heap_, value)));
    convert(out, value, spec, format_.own_at(base > 0 ? base - 1 : 0));
  }

  Value look_up(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, end);
    Value value = argument(first);
    for (size_t i = end; i < name.size();) {
      if (value.is_undefined()) bad_spec("a field looks into an undefined value");
      if (name[i] == '.') {
        const size_t stop = std::min(name.find_first_of(".[", i + 1), name.size());
        if (stop == i + 1) bad_spec("an empty attribute in a field");
        value = attribute(heap_, value, name.substr(i + 1, stop - i - 1));
        i = stop;
      } else {
        const size_t stop = name.find(']', i);
        if (name[i] != '[' || stop == std::string_view::npos || stop == i + 1) bad_spec("a malformed index in a field");
        const std::string_view key = name.substr(i + 1, stop - i - 1);
        const auto index = number(key);
        value = item(heap_, value, index ? Value::integer(*index) : make_text(heap_, key, true));
        i = stop + 1;
      }
    }
    return value;
  }

  static std::optional<int64_t> number(std::string_view text) {
    if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
      bad_spec("too many digits in a field");
    return value;
  }

  Value argument(std::string_view name) {
    std::optional<int64_t> index = number(name);
    if (index || name.empty()) {
      if (name.empty() ? manual_ : automatic_ > 0) bad_spec("automatic and manual field numbers are mixed");
      if (name.empty())
        index = automatic_++;
      else
        manual_ = true;
      if (static_cast<uint64_t>(*index) >= args_.positional.size())
        bad_spec("no argument number " + std::to_string(*index));
      return args_.positional[static_cast<size_t>(*index)];
    }
    for (const auto& [key, value] : args_.named)
      if (key == name) return value;
    bad_spec("no argument named '" + std::string(name) + "'");
  }

  static Spec parse(std::string_view text) {
    Spec spec;
    size_t at = 0;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (!text.empty()) {
      size_t second = 0;
      next_point(text, second);
      if (second < text.size() && is_align(text[second])) {
        spec.fill = std::string(text.substr(0, second));
        spec.align = text[second];
        at = second + 1;
      } else if (is_align(text[0])) {
        spec.align = text[0];
        at = 1;
      }
    }
    const auto here = [&] { return at < text.size() ? text[at] : '\0'; };
    const auto size = [&](int64_t max) {
      int64_t n = 0;
      for (; here() >= '0' && here() <= '9'; ++at) {
        n = n * 10 + (here() - '0');
        if (n > max) bad_spec("a width or precision beyond " + std::to_string(max));
      }
      return n;
    };
    if (here() == '+' || here() == '-' || here() == ' ') spec.sign = text[at++];
    if (here() == '#') {
      spec.alternate = true;
      ++at;
    }
    if (here() == '0') {
      spec.zero = true;
      ++at;
    }
    spec.width = size(kWidthMax);
    if (here() == ',' || here() == '_') {
      spec.commas = true;
      spec.separator = text[at++];
    }
    if (here() == '.') {
      ++at;
      if (here() < '0' || here() > '9') bad_spec("a precision is missing");
      spec.precision = size(kPrecisionMax);
    }
    if (at < text.size()) spec.type = text[at++];
    if (at < text.size()) bad_spec("invalid format specifier '" + std::string(text) + "'");
    return spec;
  }

  void convert(TextBuilder& out, const Value& value, const std::string& text, bool own) {
    if (text.empty()) return write_text(out, value);
    Spec spec = parse(text);
    const char type = spec.type;
    const auto among = [type](const char* types) {
      return type == 0 || std::string_view(types).find(type) != std::string_view::npos;
    };
    if (value.is_string()) {
      if (!among("s") || spec.align == '=' || spec.sign != '-' || spec.commas)
        bad_spec("'" + text + "' does not suit a string");
      if (spec.zero && spec.fill == " ") spec.fill = "0";
      return write_string(out, text_of(value), spec, own);
    }
    if (value.is_integral() || value.is(Kind::big)) {
      if (type == 'c') return write_string(out, text_of(one_character(heap_, value)), spec, own);
      if (type != 0 && among("eEfFgG%") && value.is_integral()) return write_real(out, value.as_real(), spec, own);
      if (!among("bdoxXn") || spec.precision >= 0) bad_spec("'" + text + "' does not suit an integer");
      return write_integer(out, value, spec, own);
    }
    if (value.is(Kind::real)) {
      if (!among("eEfFgGn%")) bad_spec("'" + text + "' does not suit a float");
      return write_real(out, value.as_real(), spec, own);
    }
    bad_spec(std::string("unsupported format for '") + type_name(value) + "'");
  }

  Heap& heap_;
  const Str& format_;
  const Args& args_;
  int64_t automatic_ = 0;
  bool manual_ = false;
};

}  // namespace

Value percent_format(Heap& heap, const Str& format, const Value& args) { return Percent(heap, format, args).run(); }
Value brace_format(Heap& heap, const Str& format, const Args& args) { return Brace(heap, format, args).run(); }

}  // namespace assay::chat
