// What can stand behind "is".
#include "chat/builtins/builtins.h"
#include "chat/interpreter.h"
#include "chat/ops.h"
#include "chat/print.h"

namespace assay::chat {

namespace {

using I = Interpreter;
using V = const Value&;

Value is(bool yes) { return Value::boolean(yes); }

bool remainder_is(I& in, V self, V divisor, int64_t wanted) {
  if (self.is_undefined() || divisor.is_undefined()) fail("a test of divisibility meets an undefined value");
  return equal(binary(in.heap(), Op::mod, self, divisor), Value::integer(wanted));
}

bool all_cased(I& in, V self, bool (*wanted)(char32_t)) {
  const Value text = to_text(in.heap(), self);
  bool any = false;
  for (size_t i = 0; i < bytes_of(text).size();) {
    const char32_t c = next_point(bytes_of(text), i);
    if (!is_cased(c)) continue;
    if (!wanted(c)) return false;
    any = true;
  }
  return any;
}

bool is_sequence(V self) {
  return self.is_sequence() || self.is_string() || self.is(Kind::dict) || self.is(Kind::range) || self.is_undefined();
}

bool is_callable(V self) {
  return self.is(Kind::function) || self.is(Kind::macro) || self.is(Kind::loop) || self.is(Kind::joiner) ||
         self.is_undefined();
}

bool same(V a, V b) {
  if (a.kind() != b.kind()) return false;
  if (a.object() || b.object()) return a.object() == b.object();
  return equal(a, b);
}

template <Op op>
Value comparison(I&, V self, Args& a) {
  const bool orders = op == Op::lt || op == Op::le || op == Op::gt || op == Op::ge;
  if (orders && (self.is_undefined() || a[0].is_undefined())) fail("a comparison meets an undefined value");
  return is(compare(op, self, a[0]));
}

template <Kind kind>
Value of_kind(I&, V self, Args&) {
  return is(self.kind() == kind);
}

constexpr Builtin kTests[] = {
    {"defined", [](I&, V self, Args&) { return is(!self.is_undefined()); }, "", 0},
    {"undefined", of_kind<Kind::undefined>, "", 0},
    {"none", of_kind<Kind::none>, "", 0},
    {"boolean", of_kind<Kind::boolean>, "", 0},
    {"true", [](I&, V self, Args&) { return is(self.is(Kind::boolean) && self.as_integer() != 0); }, "", 0},
    {"false", [](I&, V self, Args&) { return is(self.is(Kind::boolean) && self.as_integer() == 0); }, "", 0},
    {"integer", [](I&, V self, Args&) { return is(self.is(Kind::integer) || self.is(Kind::big)); }, "", 0},
    {"float", of_kind<Kind::real>, "", 0},
    {"number", [](I&, V self, Args&) { return is(self.is_number() || self.is(Kind::big)); }, "", 0},
    {"string", of_kind<Kind::string>, "", 0},
    {"mapping", of_kind<Kind::dict>, "", 0},
    {"sequence", [](I&, V self, Args&) { return is(is_sequence(self)); }, "", 0},
    {"iterable", [](I&, V self, Args&) { return is(iterable(self)); }, "", 0},
    {"callable", [](I&, V self, Args&) { return is(is_callable(self)); }, "", 0},
    {"odd", [](I& in, V self, Args&) { return is(remainder_is(in, self, Value::integer(2), 1)); }, "", 0},
    {"even", [](I& in, V self, Args&) { return is(remainder_is(in, self, Value::integer(2), 0)); }, "", 0},
    {"divisibleby", [](I& in, V self, Args& a) { return is(remainder_is(in, self, a[0], 0)); }, "num", 1},
    {"lower", [](I& in, V self, Args&) { return is(all_cased(in, self, [](char32_t c) { return is_lower(c); })); }, "",
     0},
    {"upper", [](I& in, V self, Args&) { return is(all_cased(in, self, [](char32_t c) { return is_upper(c); })); }, "",
     0},
    {"escaped", [](I&, V self, Args&) { return is(self.is_string() && text_of(self).markup); }, "", 0},
    {"sameas", [](I&, V self, Args& a) { return is(same(self, a[0])); }, "other", 1},
    {"in", [](I&, V self, Args& a) { return is(contains(self, a[0])); }, "seq", 1},
    {"filter", [](I&, V self, Args&) { return is(self.is_string() && find_filter(bytes_of(self))); }, "", 0},
    {"test", [](I&, V self, Args&) { return is(self.is_string() && find_test(bytes_of(self))); }, "", 0},
    {"==", comparison<Op::eq>, "/ b", 1},
    {"eq", comparison<Op::eq>, "/ b", 1},
    {"equalto", comparison<Op::eq>, "/ b", 1},
    {"!=", comparison<Op::ne>, "/ b", 1},
    {"ne", comparison<Op::ne>, "/ b", 1},
    {"<", comparison<Op::lt>, "/ b", 1},
    {"lt", comparison<Op::lt>, "/ b", 1},
    {"lessthan", comparison<Op::lt>, "/ b", 1},
    {"<=", comparison<Op::le>, "/ b", 1},
    {"le", comparison<Op::le>, "/ b", 1},
    {">", comparison<Op::gt>, "/ b", 1},
    {"gt", comparison<Op::gt>, "/ b", 1},
    {"greaterthan", comparison<Op::gt>, "/ b", 1},
    {">=", comparison<Op::ge>, "/ b", 1},
    {"ge", comparison<Op::ge>, "/ b", 1},
};

}  // namespace

std::span<const Builtin> tests() noexcept { return kTests; }

}  // namespace assay::chat
