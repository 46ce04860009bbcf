// See print.h.
#include "chat/print.h"

#include <algorithm>
#include <array>

#include "chat/builtins/builtins.h"
#include "chat/builtins/numbers.h"
#include "chat/builtins/sort.h"
#include "chat/ops.h"
#include "chat/scope.h"

namespace assay::chat {

namespace {

std::string hex(char32_t c, int width) {
  std::string out(static_cast<size_t>(width), '0');
  for (auto it = out.rbegin(); it != out.rend(); ++it, c >>= 4) *it = "0123456789abcdef"[c & 15];
  return out;
}

void write_text_repr(TextBuilder& out, const Str& text) {
  const std::string& bytes = text.bytes;
  if (text.markup) out.add("Markup(", false);
  const bool double_quotes = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.add(std::string_view(&quote, 1), false);
  size_t plain = 0;
  for (size_t i = 0; i < bytes.size();) {
    const size_t start = i;
    const char32_t c = next_point(bytes, i);
    std::string escaped;
    if (c == static_cast<char32_t>(quote) || c == '\\')
      escaped = {'\\', static_cast<char>(c)};
    else if (c == '\n')
      escaped = "\\n";
    else if (c == '\r')
      escaped = "\\r";
    else if (c == '\t')
      escaped = "\\t";
    else if (c < 0x20 || c == 0x7F || (c >= 0x80 && !is_printable(c)))
      escaped = c < 0x100 ? "\\x" + hex(c, 2) : c < 0x10000 ? "\\u" + hex(c, 4) : "\\U" + hex(c, 8);
    else
      continue;
    out.add(text, plain, start);
    out.add(escaped, text.own_at(start));
    plain = i;
  }
  out.add(text, plain, bytes.size());
  out.add(std::string_view(&quote, 1), false);
  if (text.markup) out.add(")", false);
}

void write_items(TextBuilder& out, const std::vector<Value>& items, int depth) {
  bool first = true;
  for (const Value& item : items) {
    out.heap().step();
    if (!first) out.add(", ", false);
    first = false;
    write_repr(out, item, depth + 1);
  }
}

void write_dict(TextBuilder& out, const Dict& dict, int depth) {
  out.add("{", false);
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    out.heap().step();
    if (!first) out.add(", ", false);
    first = false;
    write_repr(out, key, depth + 1);
    out.add(": ", false);
    write_repr(out, value, depth + 1);
  }
  out.add("}", false);
}

void write_range(TextBuilder& out, const Range& range) {
  std::string text = "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) text += ", " + std::to_string(range.step);
  out.add(text + ")", true);
}

// Things that Python shows with their address in memory: here by their type alone.
void write_opaque(TextBuilder& out, const Value& value) {
  if (value.is(Kind::macro)) {
    const std::string& name = value.as<Macro>().definition->name;
    out.add(name.empty() ? "<Macro anonymous>" : "<Macro '" + name + "'>", true);
  } else if (value.is(Kind::loop)) {
    const Loop& loop = value.as<Loop>();
    out.add("<LoopContext " + std::to_string(loop.index0 + 1) + "/" + std::to_string(loop.length()) + ">", true);
  } else {
    out.add(std::string("<") + type_name(value) + " object>", true);
  }
}

}  // namespace

void write_repr(TextBuilder& out, const Value& value, int depth) {
  check_depth(depth);
  switch (value.kind()) {
    case Kind::absent:
    case Kind::undefined: return out.add("Undefined", true);
    case Kind::none: return out.add("None", true);
    case Kind::boolean: return out.add(value.as_integer() ? "True" : "False", true);
    case Kind::integer: return out.add(std::to_string(value.as_integer()), true);
    case Kind::big: return out.add(value);
    case Kind::real: return out.add(real_text(value.as_real()), true);
    case Kind::string: return write_text_repr(out, text_of(value));
    case Kind::list:
      out.add("[", false);
      write_items(out, value.as<Seq>().items, depth);
      return out.add("]", false);
    case Kind::tuple:
      out.add("(", false);
      write_items(out, value.as<Seq>().items, depth);
      return out.add(value.as<Seq>().items.size() == 1 ? ",)" : ")", false);
    case Kind::dict: return write_dict(out, value.as<Dict>(), depth);
    case Kind::range: return write_range(out, value.as<Range>());
    case Kind::view:
      out.add(std::string(value.as<Seq>().label) + "([", false);
      write_items(out, value.as<Seq>().items, depth);
      return out.add("])", false);
    case Kind::space: {
      out.add("<Namespace {", false);
      bool first = true;
      for (const auto& [key, item] : value.as<Space>().items) {
        out.add((first ? "'" : ", '") + key + "': ", false);
        first = false;
        write_repr(out, item, depth + 1);
      }
      return out.add("}>", false);
    }
    default: write_opaque(out, value);
  }
}

void write_text(TextBuilder& out, const Value& value) {
  if (value.is_string()) return out.add(value);
  if (value.is_undefined() || value.is_absent()) return;
  write_repr(out, value);
}

Value to_text(Heap& heap, const Value& value) {
  if (value.is_string() && !text_of(value).markup) return value;
  TextBuilder out(heap);
  write_text(out, value);
  return out.take();
}

Value soft_text(Heap& heap, const Value& value) { return value.is_string() ? value : to_text(heap, value); }

namespace {

class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& value, int depth) {
    check_depth(depth);
    out_.heap().step();
    switch (value.kind()) {
      case Kind::none: return out_.add("null", false);
      case Kind::boolean: return out_.add(value.as_integer() ? "true" : "false", false);
      case Kind::integer: return out_.add(std::to_string(value.as_integer()), false);
      case Kind::big: return out_.add(bytes_of(value), false);
      case Kind::real: return out_.add(real(value.as_real()), false);
      case Kind::string: return string(text_of(value));
      case Kind::list:
      case Kind::tuple: return list(value.as<Seq>().items, depth);
      case Kind::dict: return dict(value.as<Dict>(), depth);
      default: fail(std::string("object of type ") + type_name(value) + " is not JSON serializable");
    }
  }

 private:
  static std::string real(double value) {
    const std::string text = real_text(value);
    if (text == "nan") return "NaN";
    if (text == "inf") return "Infinity";
    return text == "-inf" ? "-Infinity" : text;
  }

  void new_line(int depth) {
    if (!style_.indented) return;
    out_.add("\n", false);
    out_.fill(depth, style_.indent, false);
  }

  void list(const std::vector<Value>& items, int depth) {
    if (items.empty()) return out_.add("[]", false);
    out_.add("[", false);
    bool first = true;
    for (const Value& item : items) {
      if (!first) out_.add(style_.item_separator, false);
      first = false;
      new_line(depth + 1);
      write(item, depth + 1);
    }
    new_line(depth);
    out_.add("]", false);
  }

  void key(const Value& key) {
    switch (key.kind()) {
      case Kind::string: return string(text_of(key));
      case Kind::none: return out_.add("\"null\"", false);
      case Kind::boolean: return out_.add(key.as_integer() ? "\"true\"" : "\"false\"", false);
      case Kind::integer: return out_.add("\"" + std::to_string(key.as_integer()) + "\"", false);
      case Kind::real: return out_.add("\"" + real(key.as_real()) + "\"", false);
      case Kind::big: return out_.add("\"" + bytes_of(key) + "\"", false);
      default: fail(std::string("keys of JSON objects must be str, int, float, bool or None, not ") + type_name(key));
    }
  }

  void dict(const Dict& dict, int depth) {
    if (dict.items.empty()) return out_.add("{}", false);
    std::vector<size_t> order(dict.items.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys)
      merge_sort(order, [&](size_t a, size_t b) { return less(dict.items[a].first, dict.items[b].first); });
    out_.add("{", false);
    bool first = true;
    for (const size_t i : order) {
      if (!first) out_.add(style_.item_separator, false);
      first = false;
      new_line(depth + 1);
      key(dict.items[i].first);
      out_.add(style_.key_separator, false);
      write(dict.items[i].second, depth + 1);
    }
    new_line(depth);
    out_.add("}", false);
  }

  void string(const Str& text) {
    const std::string& bytes = text.bytes;
    out_.add("\"", false);
    size_t plain = 0;
    for (size_t i = 0; i < bytes.size();) {
      const size_t start = i;
      const char32_t c = next_point(bytes, i);
      if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !style_.ascii_only)) continue;
      out_.add(text, plain, start);
      out_.add(escape_of(c), text.own_at(start));
      plain = i;
    }
    out_.add(text, plain, bytes.size());
    out_.add("\"", false);
  }

  static std::string escape_of(char32_t c) {
    switch (c) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\b': return "\\b";
      case '\f': return "\\f";
      default: break;
    }
    if (c < 0x10000) return "\\u" + hex(c, 4);
    c -= 0x10000;
    return "\\u" + hex(0xD800 + (c >> 10), 4) + "\\u" + hex(0xDC00 + (c & 0x3FF), 4);
  }

  TextBuilder& out_;
  const JsonStyle& style_;
};

}  // namespace

void write_json(TextBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(out, style).write(value, 0);
}

}  // namespace assay::chat
