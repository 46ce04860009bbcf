// The tables of filters, tests, global functions and methods. One record each: the name, its
// parameters, the code.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace assay::chat {

class Interpreter;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  const Value& operator[](size_t i) const { return positional[i]; }
};

// self: the value filtered, tested or whose method this is; none for a global function. The
// arguments are bound by then: one slot per parameter, Kind::absent where it was not given.
using Native = Value (*)(Interpreter& interpreter, const Value& self, Args& args);

struct Builtin {
  std::string_view name;
  Native run;
  std::string_view parameters;  // names with a blank between; a "/" in front: by position only;
                                // "*": anything, not bound
  int n_required = 0;
};

const Builtin* find_filter(std::string_view name) noexcept;
const Builtin* find_test(std::string_view name) noexcept;
const Builtin* find_method(const Value& value, std::string_view name) noexcept;

// Filters of text that are methods of strings too: one record, called either way. replace, title, center, join and
// format are not among them: Jinja's filters take, keep or return something else than Python's methods.
std::span<const Builtin> text_filters_and_methods() noexcept;
std::span<const Builtin> text_filters() noexcept;  // the others
std::span<const Builtin> sequence_filters() noexcept;
std::span<const Builtin> value_filters() noexcept;
std::span<const Builtin> tests() noexcept;
std::span<const Builtin> globals() noexcept;
// A method without code is one that would change its value: the immutable sandbox hides it.
std::span<const Builtin> string_methods() noexcept;  // those that are not filters
std::span<const Builtin> dict_methods() noexcept;
std::span<const Builtin> list_methods() noexcept;
std::span<const Builtin> tuple_methods() noexcept;
std::span<const Builtin> loop_methods() noexcept;
std::span<const Builtin> cycler_methods() noexcept;
std::span<const Builtin> integer_methods() noexcept;
std::span<const Builtin> real_methods() noexcept;

// Puts the arguments into the slots of the parameters; fails as Python would.
void bind(const Builtin& builtin, Args& args);

}  // namespace assay::chat
