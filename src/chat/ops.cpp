// See ops.h.
#include "chat/ops.h"

#include <algorithm>

#include "chat/builtins/builtins.h"
#include "chat/builtins/format.h"
#include "chat/builtins/numbers.h"

namespace assay::chat {

namespace {

[[noreturn]] void no_operator(const char* op, const Value& a, const Value& b) {
  fail(std::string("unsupported operand types for ") + op + ": '" + type_name(a) + "' and '" + type_name(b) + "'");
}

const char* spelling(Op op) noexcept {
  constexpr const char* kSpellings[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSpellings[static_cast<size_t>(op)];
}

bool is_nan(const Value& value) noexcept { return value.is(Kind::real) && value.as_real() != value.as_real(); }

bool same_items(const std::vector<Value>& a, const std::vector<Value>& b, int depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equal(a[i], b[i], depth + 1)) return false;
  return true;
}

bool same_dicts(const Dict& a, const Dict& b, int depth) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find_key(b, key);
    if (!other || !equal(value, *other, depth + 1)) return false;
  }
  return true;
}

bool same_ranges(const Range& a, const Range& b) noexcept {
  if (a.length != b.length || a.length == 0) return a.length == b.length;
  return a.start == b.start && (a.length == 1 || a.step == b.step);
}

}  // namespace

bool truthy(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::absent:
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.as_integer() != 0;
    case Kind::real: return value.as_real() != 0;
    case Kind::string: return !bytes_of(value).empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::view: return !value.as<Seq>().items.empty();
    case Kind::dict: return !value.as<Dict>().items.empty();
    case Kind::range: return value.as<Range>().length != 0;
    default: return true;
  }
}

bool equal(const Value& a, const Value& b, int depth) {
  if (a.is_number() && b.is_number()) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::absent:
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::big:
    case Kind::string: a.object()->heap.work(bytes_of(a).size()); return bytes_of(a) == bytes_of(b);
    case Kind::range: return same_ranges(a.as<Range>(), b.as<Range>());
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      if (a.object() == b.object()) return true;
      check_depth(depth);
      a.object()->heap.step();
      return same_items(a.as<Seq>().items, b.as<Seq>().items, depth);
    case Kind::dict:
      if (a.object() == b.object()) return true;
      check_depth(depth);
      a.object()->heap.step();
      return same_dicts(a.as<Dict>(), b.as<Dict>(), depth);
    default: return a.object() == b.object();
  }
}

bool less(const Value& a, const Value& b, int depth) {
  if (a.is_number() && b.is_number()) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) < 0;
  if (a.kind() == b.kind()) {
    if (a.is_string()) {
      a.object()->heap.work(bytes_of(a).size());
      return bytes_of(a) < bytes_of(b);  // UTF-8 orders as its code points do
    }
    if (a.is_sequence()) {
      check_depth(depth);
      a.object()->heap.step();
      const auto& x = a.as<Seq>().items;
      const auto& y = b.as<Seq>().items;
      for (size_t i = 0; i < x.size() && i < y.size(); ++i)
        if (!equal(x[i], y[i], depth + 1)) return less(x[i], y[i], depth + 1);
      return x.size() < y.size();
    }
  }
  fail(std::string("'<' is not supported between '") + type_name(a) + "' and '" + type_name(b) + "'");
}

bool compare(Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::eq: return equal(a, b);
    case Op::ne: return !equal(a, b);
    case Op::lt: return less(a, b);
    case Op::gt: return less(b, a);
    case Op::le:
    case Op::ge:
      if (is_nan(a) || is_nan(b)) return a.is_number() && b.is_number() ? false : less(a, b);
      return op == Op::le ? !less(b, a) : !less(a, b);
    case Op::in: return contains(a, b);
    default: return !contains(a, b);
  }
}

bool contains(const Value& item, const Value& where) {
  switch (where.kind()) {
    case Kind::string: {
      if (!item.is_string())
        fail(std::string("'in <string>' needs a string on its left, not '") + type_name(item) + "'");
      where.object()->heap.work(bytes_of(where).size() + bytes_of(item).size());
      return chat::find(bytes_of(where), bytes_of(item)) != kNotFound;
    }
    case Kind::dict:
      if (!hashable(item)) fail(std::string("unhashable type: '") + type_name(item) + "'");
      return find_key(where.as<Dict>(), item) != nullptr;
    case Kind::undefined: return false;
    default: break;
  }
  if (!iterable(where)) fail(std::string("'") + type_name(where) + "' cannot be searched with 'in'");
  Heap& heap = where.object()->heap;
  const Value items = items_of(heap, where);
  for (const Value& candidate : items.as<Seq>().items) {
    heap.step();
    if (equal(candidate, item)) return true;
  }
  return false;
}

namespace {

Value repeat_items(const Value& sequence, int64_t n) {
  const auto& items = sequence.as<Seq>().items;
  Heap& heap = sequence.object()->heap;
  ListBuilder builder(heap);
  if (n > 0 && !items.empty()) {
    const auto unit = static_cast<int64_t>(items.size() * sizeof(Value));
    if (n > heap.limits().value_bytes_max / unit) heap.need(heap.limits().value_bytes_max + 1);
    heap.need(n * unit);
    for (int64_t i = 0; i < n; ++i) {
      heap.step();
      for (const Value& item : items) builder.push(item);
    }
  }
  return builder.take(sequence.kind());
}

Value joined(const Value& a, const Value& b) {
  ListBuilder builder(a.object()->heap);
  builder.items.reserve(a.as<Seq>().items.size() + b.as<Seq>().items.size());
  for (const Value& item : a.as<Seq>().items) builder.push(item);
  for (const Value& item : b.as<Seq>().items) builder.push(item);
  a.object()->heap.step(static_cast<int64_t>(builder.items.size() / 8));
  return builder.take(a.kind());
}

}  // namespace

Value binary(Heap& heap, Op op, const Value& a, const Value& b) {
  if (op == Op::mod && a.is_string()) return percent_format(heap, text_of(a), b);
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == Op::add) {
    if (a.is_string() && b.is_string()) return concat(text_of(a), text_of(b));
    if (a.is_sequence() && a.kind() == b.kind()) return joined(a, b);
  }
  if (op == Op::mul) {
    const Value& sequence = a.is_integral() ? b : a;
    const Value& count = a.is_integral() ? a : b;
    if (count.is_integral() && sequence.is_string()) return repeat(text_of(sequence), count.as_integer());
    if (count.is_integral() && sequence.is_sequence()) return repeat_items(sequence, count.as_integer());
  }
  if (a.is(Kind::big) || b.is(Kind::big)) fail("arithmetic with an integer beyond 64 bits is not supported");
  no_operator(spelling(op), a, b);
}

bool iterable(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::iterator:
    case Kind::view:
    case Kind::loop: return true;
    default: return false;
  }
}

Value items_of(Heap& heap, const Value& value) {
  if (value.is_sequence() || value.is(Kind::view)) return value;
  ListBuilder items(heap);
  switch (value.kind()) {
    case Kind::undefined: break;
    case Kind::string: {
      const Str& text = text_of(value);
      heap.step(static_cast<int64_t>(text.bytes.size() / 16));
      for (size_t i = 0; i < text.bytes.size();) {
        const Value one = character(text, i);
        items.push(text_of(one).markup ? plain(text_of(one)) : one);  // walking a Markup gives plain strings
      }
      break;
    }
    case Kind::dict:
      for (const auto& [key, unused] : value.as<Dict>().items) items.push(key);
      break;
    case Kind::range: {
      const Range& range = value.as<Range>();
      for (int64_t i = 0; i < range.length; ++i) items.push(Value::integer(range.at(i)));
      break;
    }
    case Kind::iterator: {
      Seq& source = value.as<Seq>();
      for (; source.next_item < source.items.size(); ++source.next_item) items.push(source.items[source.next_item]);
      break;
    }
    default: fail(std::string("'") + type_name(value) + "' object is not iterable");
  }
  heap.step(static_cast<int64_t>(items.items.size() / 8));
  return items.take(Kind::list);
}

bool sized(const Value& value) noexcept { return iterable(value) && !value.is(Kind::iterator); }

int64_t size_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return length(text_of(value));
    case Kind::list:
    case Kind::tuple:
    case Kind::view: return static_cast<int64_t>(value.as<Seq>().items.size());
    case Kind::dict: return static_cast<int64_t>(value.as<Dict>().items.size());
    case Kind::range: return value.as<Range>().length;
    default: fail(std::string("object of type '") + type_name(value) + "' has no len()");
  }
}

Value item_at(const Value& sequence, int64_t index) {
  const int64_t n = size_of(sequence);
  if (index < 0) index += n;
  if (index < 0 || index >= n) return Value::undefined();
  if (sequence.is(Kind::range)) return Value::integer(sequence.as<Range>().at(index));
  if (sequence.is_string()) {
    size_t offset = offset_of(text_of(sequence), index);
    return character(text_of(sequence), offset);
  }
  return sequence.as<Seq>().items[static_cast<size_t>(index)];
}

namespace {

struct Cut {
  int64_t start, stop, step, n;
};

// Python's slice.indices: every bound brought inside [0, n] (or [-1, n) for a negative step).
Cut cut(int64_t n, const Value& start, const Value& stop, const Value& step) {
  const auto bound_of = [&](const Value& value, int64_t missing, bool negative_step) {
    if (value.is(Kind::none) || value.is_absent()) return missing;
    int64_t i = need_integer(value, "a slice index");
    if (i < 0) i = i < -n ? -1 : i + n;
    if (i < 0) return negative_step ? int64_t{-1} : int64_t{0};
    const int64_t last = negative_step ? n - 1 : n;
    return std::min(i, last);
  };
  Cut c{};
  c.step = step.is(Kind::none) || step.is_absent() ? 1 : need_integer(step, "a slice step");
  if (c.step == 0) fail("a slice step cannot be zero");
  c.step = std::clamp(c.step, -n - 1, n + 1);
  if (c.step == 0) c.step = 1;
  const bool negative_step = c.step < 0;
  c.start = bound_of(start, negative_step ? n - 1 : 0, negative_step);
  c.stop = bound_of(stop, negative_step ? -1 : n, negative_step);
  if (!negative_step)
    c.n = c.stop > c.start ? (c.stop - c.start - 1) / c.step + 1 : 0;
  else
    c.n = c.start > c.stop ? (c.start - c.stop - 1) / -c.step + 1 : 0;
  return c;
}

Value slice_text(const Str& text, const Cut& c) {
  if (c.step == 1) {
    if (c.n == 0) return part(text, 0, 0);
    const size_t from = offset_of(text, c.start);
    const size_t to = c.stop == length(text) ? text.bytes.size() : offset_of(text, c.stop);
    return part(text, from, to);
  }
  std::vector<size_t> starts;
  for (size_t i = 0; i < text.bytes.size(); next_point(text.bytes, i)) starts.push_back(i);
  starts.push_back(text.bytes.size());
  text.heap.step(static_cast<int64_t>(text.bytes.size() / 8));
  TextBuilder builder(text.heap);
  for (int64_t i = 0; i < c.n; ++i) {
    const auto at = static_cast<size_t>(c.start + i * c.step);
    builder.add(text, starts[at], starts[at + 1]);
  }
  return builder.take(text.markup);
}

}  // namespace

Value slice(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_string()) {
    const Str& text = text_of(value);
    return slice_text(text, cut(length(text), start, stop, step));
  }
  if (value.is(Kind::range)) {
    const Range& range = value.as<Range>();
    const Cut c = cut(range.length, start, stop, step);
    Range* out = heap.make<Range>();
    const Value result(Kind::range, out);
    const auto wrapped = [](int64_t a, int64_t b,
                            int64_t factor) {  // bounds that no item reaches may leave 64 bits
      return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b) * static_cast<uint64_t>(factor));
    };
    out->start = wrapped(range.start, c.start, range.step);
    out->step = wrapped(0, range.step, c.step);
    out->length = c.n;
    out->stop = wrapped(range.start, c.stop, range.step);
    return result;
  }
  if (!value.is_sequence()) fail(std::string("'") + type_name(value) + "' object cannot be sliced");
  const auto& items = value.as<Seq>().items;
  const Cut c = cut(static_cast<int64_t>(items.size()), start, stop, step);
  ListBuilder out(heap);
  for (int64_t i = 0; i < c.n; ++i) out.push(items[static_cast<size_t>(c.start + i * c.step)]);
  heap.step(c.n / 8);
  return out.take(value.kind());
}

Value bound(Heap& heap, const Builtin* builtin, const Value& self) {
  auto* function = heap.make<Function>();
  const Value value(Kind::function, function);
  function->builtin = builtin;
  function->self = self;
  return value;
}

int64_t need_integer(const Value& value, const char* what) {
  if (!value.is_integral()) fail(std::string(what) + " must be an integer, not '" + type_name(value) + "'");
  return value.as_integer();
}

void check_depth(int depth) {
  if (depth > kValueDepthMax) fail("a value is nested deeper than " + std::to_string(kValueDepthMax));
}

const Str* optional_text(const Value& value, const char* what) {
  return value.is_absent() || value.is(Kind::none) ? nullptr : &need_text(value, what);
}

const Str& need_text(const Value& value, const char* what) {
  if (!value.is_string()) fail(std::string(what) + " must be a string, not '" + type_name(value) + "'");
  return text_of(value);
}

}  // namespace assay::chat
