// See attributes.h.
#include "chat/attributes.h"

#include <charconv>
#include <optional>

#include "chat/builtins/builtins.h"
#include "chat/ops.h"
#include "chat/scope.h"

namespace assay::chat {

namespace {

std::optional<Value> loop_attribute(const Loop& loop, std::string_view name) {
  const int64_t n = loop.length(), i = loop.index0;
  const auto neighbour = [&](int64_t at) {
    return at < 0 || at >= n ? Value::undefined() : loop.items.as<Seq>().items[static_cast<size_t>(at)];
  };
  if (name == "index") return Value::integer(i + 1);
  if (name == "index0") return Value::integer(i);
  if (name == "first") return Value::boolean(i == 0);
  if (name == "last") return Value::boolean(i == n - 1);
  if (name == "length") return Value::integer(n);
  if (name == "revindex") return Value::integer(n - i);
  if (name == "revindex0") return Value::integer(n - i - 1);
  if (name == "previtem") return neighbour(i - 1);
  if (name == "nextitem") return neighbour(i + 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  return std::nullopt;
}

std::optional<Value> macro_attribute(Heap& heap, const Macro& macro, std::string_view name) {
  const MacroDef& definition = *macro.definition;
  if (name == "name") return definition.name.empty() ? Value() : make_text(heap, definition.name, true);
  if (name == "arguments") {
    ListBuilder names(heap);
    for (const std::string& parameter : definition.parameter_names) names.push(make_text(heap, parameter, true));
    return names.take(Kind::tuple);
  }
  if (name == "catch_kwargs") return Value::boolean(definition.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(definition.uses_varargs);
  if (name == "caller") return Value::boolean(definition.uses_caller);
  return std::nullopt;
}

std::optional<Value> number_attribute(const Value& value, std::string_view name) {
  if (name == "real") return value.is(Kind::boolean) ? Value::integer(value.as_integer()) : value;
  if (name == "imag") return value.is(Kind::real) ? Value::real(0) : Value::integer(0);
  if (!value.is_integral()) return std::nullopt;
  if (name == "numerator") return Value::integer(value.as_integer());
  if (name == "denominator") return Value::integer(1);
  return std::nullopt;
}

bool is_dunder(std::string_view name) noexcept {
  return name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
}

// What Python's getattr() finds, once the sandbox has had its say; nullopt: nothing of that name.
std::optional<Value> own_attribute(Heap& heap, const Value& object, std::string_view name) {
  if (is_dunder(name)) return Value::undefined();
  if (const Builtin* method = find_method(object, name))
    return method->run ? bound(heap, method, object) : Value::undefined();
  switch (object.kind()) {
    case Kind::space:
      for (const auto& [key, value] : object.as<Space>().items)
        if (key == name) return name.substr(0, 1) == "_" ? Value::undefined() : value;
      heap.step(static_cast<int64_t>(object.as<Space>().items.size() / 8));
      return std::nullopt;
    case Kind::loop: return loop_attribute(object.as<Loop>(), name);
    case Kind::macro: return macro_attribute(heap, object.as<Macro>(), name);
    case Kind::boolean:
    case Kind::integer:
    case Kind::real: return number_attribute(object, name);
    case Kind::range: {
      const Range& range = object.as<Range>();
      if (name == "start") return Value::integer(range.start);
      if (name == "stop") return Value::integer(range.stop);
      if (name == "step") return Value::integer(range.step);
      return std::nullopt;
    }
    case Kind::cycler:
      if (name == "current") return object.as<Cycler>().items[object.as<Cycler>().position];
      if (name == "pos") return Value::integer(static_cast<int64_t>(object.as<Cycler>().position));
      return std::nullopt;
    case Kind::tuple:
      if (object.as<Seq>().group && name == "grouper") return object.as<Seq>().items[0];
      if (object.as<Seq>().group && name == "list") return object.as<Seq>().items[1];
      return std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace

Value attribute(Heap& heap, const Value& object, std::string_view name) {
  if (std::optional<Value> own = own_attribute(heap, object, name)) return *std::move(own);
  if (object.is(Kind::dict))
    if (const Value* value = find_key(object.as<Dict>(), name)) return *value;
  return Value::undefined();
}

Value item(Heap& heap, const Value& object, const Value& key) {
  if (object.is(Kind::dict)) {
    if (hashable(key))
      if (const Value* value = find_key(object.as<Dict>(), key)) return *value;
  } else if (key.is_integral() && (object.is_sequence() || object.is_string() || object.is(Kind::range))) {
    return item_at(object, key.as_integer());
  }
  if (key.is_string())
    if (std::optional<Value> own = own_attribute(heap, object, bytes_of(key))) return *std::move(own);
  return Value::undefined();
}

Value walk(Heap& heap, const Value& object, const Value& path, const Value& fallback) {
  const auto one = [&](const Value& from, const Value& key) {
    if (from.is_undefined()) fail("a filter's attribute looks into an undefined value");
    Value value = item(heap, from, key);
    return value.is_undefined() && !fallback.is_absent() && !fallback.is(Kind::none) ? fallback : value;
  };
  if (path.is_absent() || path.is(Kind::none)) return object;
  if (!path.is_string()) return one(object, path);
  Value value = object;
  const std::string_view text = bytes_of(path);
  for (size_t from = 0; from <= text.size();) {
    const size_t dot = std::min(text.find('.', from), text.size());
    const std::string_view name = text.substr(from, dot - from);
    int64_t index = 0;
    const bool digits = !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
    if (digits && std::from_chars(name.data(), name.data() + name.size(), index).ec != std::errc())
      fail("attribute index out of range");
    value = one(value, digits ? Value::integer(index) : make_text(heap, name, true));
    from = dot + 1;
  }
  return value;
}

}  // namespace assay::chat
