// The methods of everything but strings, and the global functions.
#include <bit>
#include <cmath>

#include "chat/builtins/builtins.h"
#include "chat/builtins/strftime.h"
#include "chat/interpreter.h"
#include "chat/ops.h"
#include "chat/print.h"

namespace assay::chat {

namespace {

using I = Interpreter;
using V = const Value&;

constexpr int64_t kRangeMax = 100'000;  // as Jinja's sandbox has it

// dict

Value get(I&, V self, Args& a) {
  if (!hashable(a[0])) fail(std::string("unhashable type: '") + type_name(a[0]) + "'");
  if (const Value* value = find_key(self.as<Dict>(), a[0])) return *value;
  return a[1].is_absent() ? Value() : a[1];
}
Value items(I& in, V self, Args&) {
  ListBuilder out(in.heap());
  for (const auto& [key, value] : self.as<Dict>().items) out.push(make_list(in.heap(), Kind::tuple, {key, value}));
  in.heap().step(static_cast<int64_t>(out.items.size()));
  return out.take(Kind::view, "dict_items");
}
Value keys(I& in, V self, Args&) {
  ListBuilder out(in.heap());
  for (const auto& [key, value] : self.as<Dict>().items) out.push(key);
  in.heap().step(static_cast<int64_t>(out.items.size()));
  return out.take(Kind::view, "dict_keys");
}
Value values(I& in, V self, Args&) {
  ListBuilder out(in.heap());
  for (const auto& [key, value] : self.as<Dict>().items) out.push(value);
  in.heap().step(static_cast<int64_t>(out.items.size()));
  return out.take(Kind::view, "dict_values");
}
Value same(I&, V self, Args&) { return self; }  // copy(): nothing can change the original

// list, tuple, range

Value count(I& in, V self, Args& a) {
  const Value all = items_of(in.heap(), self);
  int64_t n = 0;
  for (V item : all.as<Seq>().items) n += equal(item, a[0]);
  in.heap().step(static_cast<int64_t>(all.as<Seq>().items.size()));
  return Value::integer(n);
}
Value index(I& in, V self, Args& a) {
  const Value all = items_of(in.heap(), self);
  const auto& list = all.as<Seq>().items;
  const auto n = static_cast<int64_t>(list.size());
  const auto place = [&](V value, int64_t missing) {
    if (value.is_absent()) return missing;
    const int64_t i = need_integer(value, "an index");
    return i < 0 ? (i < -n ? 0 : i + n) : std::min(i, n);
  };
  const int64_t last = place(a[2], n);
  for (int64_t i = place(a[1], 0); i < last; ++i) {
    in.heap().step();
    if (equal(list[static_cast<size_t>(i)], a[0])) return Value::integer(i);
  }
  fail("index: the value is not there");
}

// loop, cycler

Value cycle(I&, V self, Args& a) {
  if (a.positional.empty() || !a.named.empty()) fail("loop.cycle needs items to cycle through");
  const auto i = static_cast<size_t>(self.as<Loop>().index0);
  return a.positional[i % a.positional.size()];
}
Value changed(I& in, V self, Args& a) {
  if (!a.named.empty()) fail("loop.changed takes no keyword arguments");
  Loop& loop = self.as<Loop>();
  Value now = make_list(in.heap(), Kind::tuple, std::move(a.positional));
  const bool differs = loop.last_changed.is_absent() || !equal(loop.last_changed, now);
  if (differs) loop.last_changed = std::move(now);
  return Value::boolean(differs);
}
Value next(I&, V self, Args&) {
  auto& cycler = self.as<Cycler>();
  Value value = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return value;
}
Value reset(I&, V self, Args&) {
  self.as<Cycler>().position = 0;
  return {};
}

// numbers

Value bit_length(I&, V self, Args&) {
  const int64_t number = self.as_integer();
  const uint64_t size = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  return Value::integer(static_cast<int64_t>(std::bit_width(size)));
}
Value is_integer(I&, V self, Args&) {
  return Value::boolean(std::isfinite(self.as_real()) && std::floor(self.as_real()) == self.as_real());
}

// globals

Value range(I& in, V, Args& a) {
  int64_t start = 0, stop = need_integer(a[0], "range's bound"), step = 1;
  if (!a[1].is_absent()) {
    start = stop;
    stop = need_integer(a[1], "range's bound");
  }
  if (!a[2].is_absent()) step = need_integer(a[2], "range's step");
  if (step == 0) fail("range's step must not be zero");
  uint64_t n = 0;  // differences of 64-bit integers fit in 64 unsigned bits
  if (step > 0 && stop > start)
    n = (static_cast<uint64_t>(stop) - static_cast<uint64_t>(start) - 1) / static_cast<uint64_t>(step) + 1;
  if (step < 0 && stop < start)
    n = (static_cast<uint64_t>(start) - static_cast<uint64_t>(stop) - 1) / (0 - static_cast<uint64_t>(step)) + 1;
  if (n > static_cast<uint64_t>(kRangeMax))
    fail("range of " + std::to_string(n) + " items, the limit is " + std::to_string(kRangeMax));
  auto* out = in.heap().make<Range>();
  const Value value(Kind::range, out);
  out->start = start;
  out->stop = stop;
  out->step = step;
  out->length = static_cast<int64_t>(n);
  return value;
}

// dict(mapping or pairs, **more) and namespace(...) read their arguments alike.
Value to_dict(I& in, Args& a) {
  DictBuilder out(in.heap());
  if (a.positional.size() > 1) fail("dict takes at most one positional argument");
  if (!a.positional.empty() && a[0].is(Kind::dict)) {
    for (const auto& [key, value] : a[0].as<Dict>().items) out.push(key, value);
  } else if (!a.positional.empty()) {
    const Value pairs = items_of(in.heap(), a[0]);
    for (V pair : pairs.as<Seq>().items) {
      const Value parts = items_of(in.heap(), pair);
      if (parts.as<Seq>().items.size() != 2) fail("dict needs pairs");
      out.push(parts.as<Seq>().items[0], parts.as<Seq>().items[1]);
    }
  }
  for (auto& [name, value] : a.named) out.push(make_text(in.heap(), name, true), std::move(value));
  return out.take();
}
Value dict(I& in, V, Args& a) { return to_dict(in, a); }

Value name_space(I& in, V, Args& a) {
  const Value names = to_dict(in, a);
  auto* out = in.heap().make<Space>();
  const Value value(Kind::space, out);
  for (const auto& [key, item] : names.as<Dict>().items) {
    const std::string& name = need_text(key, "a namespace's name").bytes;
    in.heap().charge(*out, static_cast<int64_t>(sizeof(out->items[0]) + name.size()));
    out->items.emplace_back(name, item);
  }
  return value;
}

Value cycler(I& in, V, Args& a) {
  if (a.positional.empty() || !a.named.empty()) fail("cycler needs items to cycle through");
  auto* out = in.heap().make<Cycler>();
  const Value value(Kind::cycler, out);
  in.heap().charge(*out, static_cast<int64_t>(a.positional.size() * sizeof(Value)));
  out->items = std::move(a.positional);
  return value;
}

Value joiner(I& in, V, Args& a) {
  auto* out = in.heap().make<Joiner>();
  const Value value(Kind::joiner, out);
  out->separator = a[0].is_absent() ? make_text(in.heap(), ", ", true) : a[0];
  return value;
}

Value raise(I& in, V, Args& a) {
  const Value message = to_text(in.heap(), a[0]);
  fail(bytes_of(message));
}

Value now(I& in, V, Args& a) {
  return make_text(in.heap(), format_time(need_text(a[0], "strftime_now's format").bytes, in.input().now_unix), true);
}

Value lorem(I&, V, Args&) { fail("lipsum is not supported: its text is random"); }

constexpr Builtin kDict[] = {
    {"get", get, "/ key default", 1}, {"items", items, "", 0},      {"keys", keys, "", 0},
    {"values", values, "", 0},        {"copy", same, "", 0},        {"clear", nullptr, "", 0},
    {"pop", nullptr, "", 0},          {"popitem", nullptr, "", 0},  {"setdefault", nullptr, "", 0},
    {"update", nullptr, "", 0},       {"fromkeys", nullptr, "", 0},
};
constexpr Builtin kList[] = {
    {"count", count, "/ value", 1}, {"index", index, "/ value start stop", 1},
    {"copy", same, "", 0},          {"append", nullptr, "", 0},
    {"clear", nullptr, "", 0},      {"extend", nullptr, "", 0},
    {"insert", nullptr, "", 0},     {"pop", nullptr, "", 0},
    {"remove", nullptr, "", 0},     {"reverse", nullptr, "", 0},
    {"sort", nullptr, "", 0},
};
constexpr Builtin kTuple[] = {{"count", count, "/ value", 1}, {"index", index, "/ value start stop", 1}};
constexpr Builtin kLoop[] = {{"cycle", cycle, "*", 0}, {"changed", changed, "*", 0}};
constexpr Builtin kCycler[] = {{"next", next, "", 0}, {"reset", reset, "", 0}};
constexpr Builtin kInteger[] = {{"bit_length", bit_length, "", 0}, {"conjugate", same, "", 0}};
constexpr Builtin kReal[] = {{"is_integer", is_integer, "", 0}, {"conjugate", same, "", 0}};
constexpr Builtin kGlobals[] = {
    {"range", range, "/ start stop step", 1},
    {"dict", dict, "*", 0},
    {"namespace", name_space, "*", 0},
    {"cycler", cycler, "*", 0},
    {"joiner", joiner, "sep", 0},
    {"raise_exception", raise, "message", 1},
    {"strftime_now", now, "format", 1},
    {"lipsum", lorem, "*", 0},
};

}  // namespace

std::span<const Builtin> dict_methods() noexcept { return kDict; }
std::span<const Builtin> list_methods() noexcept { return kList; }
std::span<const Builtin> tuple_methods() noexcept { return kTuple; }
std::span<const Builtin> loop_methods() noexcept { return kLoop; }
std::span<const Builtin> cycler_methods() noexcept { return kCycler; }
std::span<const Builtin> integer_methods() noexcept { return kInteger; }
std::span<const Builtin> real_methods() noexcept { return kReal; }
std::span<const Builtin> globals() noexcept { return kGlobals; }

}  // namespace assay::chat
