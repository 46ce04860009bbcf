// Filters over numbers and single values, and tojson.
#include <cmath>

#include "chat/attributes.h"
#include "chat/builtins/builtins.h"
#include "chat/builtins/format.h"
#include "chat/builtins/numbers.h"
#include "chat/interpreter.h"
#include "chat/ops.h"
#include "chat/print.h"

namespace assay::chat {

namespace {

using I = Interpreter;
using V = const Value&;

Value default_filter(I&, V self, Args& a) {
  if (!self.is_undefined() && !(truthy(a[1]) && !truthy(self))) return self;
  return a[0];
}

Value default_value(I& in, V self, Args& a) {
  if (a[0].is_absent()) a.positional[0] = make_text(in.heap(), "", true);
  return default_filter(in, self, a);
}

JsonStyle json_style(Args& a) {
  JsonStyle style;
  style.ascii_only = truthy(a[0]);
  style.sort_keys = truthy(a[3]);
  if (!a[1].is_absent() && !a[1].is(Kind::none)) {
    style.indented = true;
    style.item_separator = ",";
    if (a[1].is_string()) {
      style.indent = bytes_of(a[1]);
    } else {
      const int64_t n = need_integer(a[1], "tojson's indent");
      if (n > 1000) fail("tojson: an indent of " + std::to_string(n) + " is beyond 1000");
      style.indent.assign(static_cast<size_t>(n > 0 ? n : 0), ' ');
    }
  }
  if (!a[2].is_absent() && !a[2].is(Kind::none)) {
    if (!a[2].is_sequence() || a[2].as<Seq>().items.size() != 2) fail("tojson: separators must be two strings");
    style.item_separator = need_text(a[2].as<Seq>().items[0], "tojson's separator").bytes;
    style.key_separator = need_text(a[2].as<Seq>().items[1], "tojson's separator").bytes;
  }
  return style;
}

Value to_json(I& in, V self, Args& a) {
  TextBuilder out(in.heap());
  write_json(out, self, json_style(a));
  return out.take();
}

Value int_filter(I&, V self, Args& a) {
  if (self.is_undefined()) fail("int of an undefined value");
  const Value fallback = a[0].is_absent() ? Value::integer(0) : a[0];
  std::optional<double> real;
  if (self.is_string()) {
    const int64_t base = a[1].is_absent() ? 10 : need_integer(a[1], "int's base");
    if (const auto whole = parse_python_int(bytes_of(self), static_cast<int>(base < 0 || base > 36 ? 1 : base)))
      return Value::integer(*whole);
    real = parse_python_float(bytes_of(self));
  } else if (self.is_integral()) {
    return Value::integer(self.as_integer());
  } else if (self.is(Kind::big)) {
    return self;
  } else if (self.is(Kind::real)) {
    real = self.as_real();
    if (std::isinf(*real)) fail("int of an infinite float");
  }
  if (!real || std::isnan(*real) || std::isinf(*real)) return fallback;
  const auto whole = real_to_integer(*real);
  if (!whole) fail("the result is an integer beyond 64 bits, which is not supported");
  return Value::integer(*whole);
}

Value float_filter(I&, V self, Args& a) {
  if (self.is_undefined()) fail("float of an undefined value");
  if (self.is_number()) return Value::real(self.as_real());
  if (self.is(Kind::big)) return Value::real(parse_real(bytes_of(self)));
  if (self.is_string())
    if (const auto real = parse_python_float(bytes_of(self))) return Value::real(*real);
  return a[0].is_absent() ? Value::real(0) : a[0];
}

Value absolute(I&, V self, Args&) {
  if (!self.is_number()) fail(std::string("abs needs a number, not '") + type_name(self) + "'");
  if (self.is(Kind::real)) return Value::real(std::fabs(self.as_real()));
  return self.as_integer() < 0 ? negative(self) : Value::integer(self.as_integer());
}

Value round_filter(I&, V self, Args& a) {
  if (!self.is_number()) fail(std::string("round needs a number, not '") + type_name(self) + "'");
  const int64_t precision = a[0].is_absent() ? 0 : need_integer(a[0], "round's precision");
  const std::string method = a[1].is_absent() ? "common" : need_text(a[1], "round's method").bytes;
  if (method == "common") return round_number(self, precision);
  if (method != "ceil" && method != "floor") fail("round's method must be common, ceil or floor");
  const Value unit = arithmetic(Op::pow, Value::integer(10), Value::integer(precision));
  const Value scaled = arithmetic(Op::mul, self, unit);
  const double size = scaled.as_real();
  const auto whole = scaled.is_integral() ? std::optional<int64_t>(scaled.as_integer())
                                          : real_to_integer(method == "ceil" ? std::ceil(size) : std::floor(size));
  if (!whole) fail("round: the number is too large");
  return arithmetic(Op::div, Value::integer(*whole), unit);
}

Value attr(I& in, V self, Args& a) {
  const std::string& name = need_text(a[0], "attr's name").bytes;
  if (self.is_undefined()) fail("attr of an undefined value");
  if (self.is(Kind::dict) && !find_method(self, name)) return Value::undefined();
  return attribute(in.heap(), self, name);
}

Value file_size(I& in, V self, Args& a) {
  double bytes = 0;
  if (self.is_number())
    bytes = self.as_real();
  else if (const auto parsed = self.is_string() ? parse_python_float(bytes_of(self)) : std::nullopt)
    bytes = *parsed;
  else
    fail(std::string("filesizeformat needs a number, not '") + type_name(self) + "'");
  const bool binary = truthy(a[0]);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return make_text(in.heap(), "1 Byte", true);
  if (bytes < base) {
    const auto whole = real_to_integer(bytes);
    if (!whole) fail("filesizeformat: the number is too large");
    return make_text(in.heap(), std::to_string(*whole) + " Bytes", true);
  }
  if (!std::isfinite(bytes)) fail("filesizeformat: the number is not finite");
  constexpr const char* kUnits = "kMGTPEZY";
  double unit = base;
  int i = 0;
  for (;; ++i) {
    unit *= base;
    if (bytes < unit || i == 7) break;
  }
  const std::string name = binary ? std::string(1, i == 0 ? 'K' : kUnits[i]) + "iB" : std::string(1, kUnits[i]) + "B";
  const Value number = Value::real(base * bytes / unit);
  const Value text = percent_format(in.heap(), text_of(make_text(in.heap(), "%.1f ", true)), number);
  return concat(text_of(text), text_of(make_text(in.heap(), name, true)));
}

constexpr Builtin kValueFilters[] = {
    {"default", default_value, "default_value boolean", 0},
    {"d", default_value, "default_value boolean", 0},
    {"tojson", to_json, "ensure_ascii indent separators sort_keys", 0},
    {"int", int_filter, "default base", 0},
    {"float", float_filter, "default", 0},
    {"abs", absolute, "", 0},
    {"round", round_filter, "precision method", 0},
    {"attr", attr, "name", 1},
    {"filesizeformat", file_size, "binary", 0},
};

}  // namespace

std::span<const Builtin> value_filters() noexcept { return kValueFilters; }

}  // namespace assay::chat
