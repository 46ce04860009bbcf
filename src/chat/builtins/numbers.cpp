// See numbers.h.
#include "chat/builtins/numbers.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "chat/builtins/unicode.h"

namespace assay::chat {

double parse_real(std::string_view digits) noexcept {
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc::result_out_of_range) return value;
  // Too large or too small: told apart by where the first digit that is not zero stands.
  const size_t e = digits.find_first_of("eE");
  const std::string_view mantissa = digits.substr(0, e);
  int64_t exponent = 0;
  if (e != std::string_view::npos) {
    std::string_view text = digits.substr(e + 1);
    if (!text.empty() && text[0] == '+') text.remove_prefix(1);
    if (std::from_chars(text.data(), text.data() + text.size(), exponent).ec != std::errc())
      exponent = text[0] == '-' ? -(int64_t{1} << 60) : int64_t{1} << 60;
  }
  const bool minus = !mantissa.empty() && mantissa[0] == '-';
  const size_t point = mantissa.find('.') == std::string_view::npos ? mantissa.size() : mantissa.find('.');
  const size_t first = mantissa.find_first_of("123456789");
  const bool large =
      first != std::string_view::npos && static_cast<int64_t>(point) - static_cast<int64_t>(first) + exponent > 0;
  const double size = large ? std::numeric_limits<double>::infinity() : 0.0;
  return minus ? -size : size;
}

namespace {

// Strips white space and turns the decimal digits of any script into ASCII.
std::string plain_number(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_point(text, i);
    if (c >= 0x80 && decimal_value(c) >= 0)
      out.push_back(static_cast<char>('0' + decimal_value(c)));
    else if (is_space(c))
      out.push_back(' ');
    else
      base::append_utf8(out, c);
  }
  const size_t from = out.find_first_not_of(' ');
  if (from == std::string::npos) return {};
  return out.substr(from, out.find_last_not_of(' ') - from + 1);
}

// Takes single underscores between digits out; false where one stands elsewhere.
bool drop_underscores(std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto alnum = [&](size_t j) {
      return j < text.size() && text[j] != '_' && text[j] != '.' && text[j] != '+' && text[j] != '-';
    };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return false;
  }
  text = out;
  return true;
}

}  // namespace

std::optional<int64_t> parse_python_int(std::string_view text, int base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  std::string digits = plain_number(text);
  bool minus = false;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) {
    minus = digits[0] == '-';
    digits.erase(0, 1);
  }
  const char mark = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : ' ';
  const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked && (base == 0 || base == marked)) {
    base = marked;
    digits.erase(0, digits[2] == '_' ? 3 : 2);
  }
  if (!drop_underscores(digits) || digits.empty()) return std::nullopt;
  if (base == 0) {
    if (digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) return std::nullopt;
    base = 10;
  }
  if (minus)
    digits.insert(digits.begin(), '-');
  else if (digits[0] == '-')
    return std::nullopt;
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (result.ptr != digits.data() + digits.size() || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) fail("an integer beyond 64 bits: " + digits.substr(0, 40));
  return value;
}

std::optional<double> parse_python_float(std::string_view text) {
  std::string digits = plain_number(text);
  if (!drop_underscores(digits) || digits.empty()) return std::nullopt;
  std::string lower;
  for (const char c : digits) lower.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  const double sign = lower[0] == '-' ? -1.0 : 1.0;
  const std::string_view size = std::string_view(lower).substr(lower[0] == '-' || lower[0] == '+' ? 1 : 0);
  if (size == "inf" || size == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (size == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (size.empty() || size[0] == '-' || size[0] == '+' ||
      size.find_first_not_of("0123456789.e+-") != std::string_view::npos)
    return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(size.data(), size.data() + size.size(), value);
  if (result.ptr != size.data() + size.size() || result.ec == std::errc::invalid_argument) return std::nullopt;
  return sign * (result.ec == std::errc::result_out_of_range ? parse_real(size) : value);
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  std::array<char, 64> buffer;
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::fabs(value), std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(result.ptr - buffer.data()));
  const size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  std::string out = value < 0 ? "-" : "";
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    const int size = std::abs(exponent);
    return out + (exponent < 0 ? "e-" : "e+") + (size < 10 ? "0" : "") + std::to_string(size);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

std::optional<int64_t> real_to_integer(double value) noexcept {
  if (!(value > -9223372036854777856.0 && value < 9223372036854775808.0)) return std::nullopt;
  return static_cast<int64_t>(value);
}

namespace {

int compare_integer_real(int64_t i, double d) noexcept {
  if (d >= 9223372036854775808.0) return -1;
  if (d < -9223372036854775808.0) return 1;
  const auto whole = static_cast<int64_t>(d);
  if (i != whole) return i < whole ? -1 : 1;
  const double rest = d - static_cast<double>(whole);
  return rest > 0 ? -1 : rest < 0;
}

[[noreturn]] void beyond() { fail("the result is an integer beyond 64 bits, which is not supported"); }

// By reference: the value is written by the very call that makes the other argument.
Value checked(bool overflow, const int64_t& value) {
  if (overflow) beyond();
  return Value::integer(value);
}

Value integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  bool overflow = false;
  while (exponent > 0) {
    if (exponent & 1) overflow |= __builtin_mul_overflow(result, base, &result);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow = true;
    if (overflow) beyond();
  }
  return Value::integer(result);
}

Value integers(Op op, int64_t a, int64_t b) {
  int64_t out = 0;
  if ((op == Op::floordiv || op == Op::mod || op == Op::div) && b == 0) fail("division by zero");
  switch (op) {
    case Op::add: return checked(__builtin_add_overflow(a, b, &out), out);
    case Op::sub: return checked(__builtin_sub_overflow(a, b, &out), out);
    case Op::mul: return checked(__builtin_mul_overflow(a, b, &out), out);
    case Op::div: return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Op::floordiv:
      if (b == -1) return checked(__builtin_sub_overflow(int64_t{0}, a, &out), out);
      return Value::integer(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
    case Op::mod:
      if (b == -1) return Value::integer(0);
      return Value::integer(a % b != 0 && (a % b < 0) != (b < 0) ? a % b + b : a % b);
    default: break;
  }
  if (b >= 0) {
    if (a == 0 || a == 1) return Value::integer(b == 0 ? 1 : a);
    if (a == -1) return Value::integer(b % 2 ? -1 : 1);
    return integer_power(a, b);
  }
  if (a == 0) fail("0 cannot be raised to a negative power");
  return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

Value reals(Op op, double a, double b) {
  if ((op == Op::floordiv || op == Op::mod || op == Op::div) && b == 0) fail("division by zero");
  switch (op) {
    case Op::add: return Value::real(a + b);
    case Op::sub: return Value::real(a - b);
    case Op::mul: return Value::real(a * b);
    case Op::div: return Value::real(a / b);
    case Op::floordiv:
    case Op::mod: {
      double rest = std::fmod(a, b);
      double quotient = (a - rest) / b;
      if (rest != 0) {
        if ((b < 0) != (rest < 0)) {
          rest += b;
          quotient -= 1.0;
        }
      } else {
        rest = std::copysign(0.0, b);
      }
      if (op == Op::mod) return Value::real(rest);
      if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
      double whole = std::floor(quotient);
      if (quotient - whole > 0.5) whole += 1.0;
      return Value::real(whole);
    }
    default: break;
  }
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    fail("a negative number cannot be raised to a fraction");
  const double power = std::pow(a, b);
  if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) fail("the result of ** is too large");
  return Value::real(power);
}

}  // namespace

int compare_numbers(const Value& a, const Value& b) noexcept {
  if (a.is_integral() && b.is_integral()) return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer();
  if (a.is_integral()) return compare_integer_real(a.as_integer(), b.as_real());
  if (b.is_integral()) return -compare_integer_real(b.as_integer(), a.as_real());
  return a.as_real() < b.as_real() ? -1 : a.as_real() > b.as_real();
}

Value arithmetic(Op op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integers(op, a.as_integer(), b.as_integer());
  return reals(op, a.as_real(), b.as_real());
}

Value negative(const Value& a) {
  if (a.is(Kind::real)) return Value::real(-a.as_real());
  int64_t out = 0;
  return checked(__builtin_sub_overflow(int64_t{0}, a.as_integer(), &out), out);
}

Value round_number(const Value& value, int64_t precision) {
  if (value.is_integral()) {
    const int64_t number = value.as_integer();
    if (precision >= 0) return Value::integer(number);
    if (precision < -19) return Value::integer(0);
    // To the nearest multiple of a power of ten, ties to the even one; __int128 keeps the sums
    // exact.
    __extension__ typedef __int128 Wide;
    Wide unit = 1;
    for (int64_t i = 0; i > precision; --i) unit *= 10;
    const Wide wide = number;
    Wide quotient = wide / unit, rest = wide % unit;
    if (rest < 0) {
      rest += unit;
      --quotient;
    }
    if (2 * rest > unit || (2 * rest == unit && quotient % 2 != 0)) ++quotient;
    const Wide rounded = quotient * unit;
    if (rounded > std::numeric_limits<int64_t>::max() || rounded < std::numeric_limits<int64_t>::min()) beyond();
    return Value::integer(static_cast<int64_t>(rounded));
  }
  const double number = value.as_real();
  if (!std::isfinite(number) || precision > 323) return value;
  if (precision < -308) return Value::real(std::copysign(0.0, number));
  if (precision >= 0) {
    std::array<char, 800> buffer;
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::fixed,
                                      static_cast<int>(precision));
    return Value::real(parse_real({buffer.data(), static_cast<size_t>(result.ptr - buffer.data())}));
  }
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  const double scaled = number / unit;
  double rounded = std::round(scaled);
  if (std::fabs(scaled - rounded) == 0.5) rounded = 2.0 * std::round(scaled / 2.0);
  if (!std::isfinite(rounded * unit)) fail("rounded value too large");
  return Value::real(rounded * unit);
}

}  // namespace assay::chat
