// What operators, subscripts and loops do to values, as Python and Jinja's sandbox have it.
#pragma once

#include "chat/ast.h"
#include "chat/builtins/strings.h"
#include "chat/value.h"

namespace assay::chat {

constexpr int kValueDepthMax = 200;  // how deep a list of lists may be for comparing and printing it

struct Function final : Object {
  using Object::Object;
  const Builtin* builtin = nullptr;
  Value self;
  void clear() noexcept override { self = Value(); }
};

bool truthy(const Value& value) noexcept;
bool equal(const Value& a, const Value& b, int depth = 0);
bool less(const Value& a, const Value& b, int depth = 0);         // fails for what Python does not order
bool contains(const Value& item, const Value& where);             // item in where
Value binary(Heap& heap, Op op, const Value& a, const Value& b);  // + - * / // % **
bool compare(Op op, const Value& a, const Value& b);
bool iterable(const Value& value) noexcept;
// All items as a list-like Seq: keys of a dict, characters of a string. Fails for what cannot be
// walked; uses an iterator up.
Value items_of(Heap& heap, const Value& value);
int64_t size_of(const Value& value);  // len(); fails where there is none
bool sized(const Value& value) noexcept;
Value item_at(const Value& sequence,
              int64_t index);  // negative: from the end; undefined where out of range
Value slice(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step);
Value bound(Heap& heap, const Builtin* builtin, const Value& self);  // a method with its value
int64_t need_integer(const Value& value, const char* what);          // fails where it is no int
const Str& need_text(const Value& value, const char* what);
const Str* optional_text(const Value& value, const char* what);  // null: absent or none
void check_depth(int depth);                                     // fails beyond kValueDepthMax

}  // namespace assay::chat
