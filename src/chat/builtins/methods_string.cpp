// The methods of strings.
#include <algorithm>

#include "chat/builtins/builtins.h"
#include "chat/builtins/format.h"
#include "chat/interpreter.h"
#include "chat/ops.h"
#include "chat/print.h"

namespace assay::chat {

namespace {

using I = Interpreter;
using V = const Value&;

int64_t optional_integer(V value, int64_t missing, const char* what) {
  return value.is_absent() ? missing : need_integer(value, what);
}

template <Side side>
Value strip_method(I&, V self, Args& a) {
  return strip(text_of(self), side, optional_text(a[0], "strip's characters"));
}
template <Side side>
Value pad_method(I&, V self, Args& a) {
  const Str* fill = a[1].is_absent() ? nullptr : &need_text(a[1], "the fill character");
  if (fill && length(*fill) != 1) fail("the fill character must be exactly one character long");
  return pad(text_of(self), need_integer(a[0], "a width"), fill, side);
}

Value swap_case_method(I&, V self, Args&) { return swap_case(text_of(self)); }
Value split_method(I&, V self, Args& a) {
  return split(text_of(self), optional_text(a[0], "split's separator"), optional_integer(a[1], -1, "maxsplit"));
}
Value rsplit_method(I&, V self, Args& a) {
  return rsplit(text_of(self), optional_text(a[0], "rsplit's separator"), optional_integer(a[1], -1, "maxsplit"));
}
Value split_lines_method(I&, V self, Args& a) { return split_lines(text_of(self), truthy(a[0])); }

// The bytes between two optional indices, as find(), count() and startswith() take them. valid is
// false where start lies behind the end.
struct Window {
  size_t from = 0, to = 0;
  bool valid = true;
};
Window window(const Str& text, V start, V stop) {
  const int64_t n = length(text);
  const auto place = [&](V value, int64_t missing) {
    if (value.is_absent() || value.is(Kind::none)) return missing;
    const int64_t i = need_integer(value, "an index");
    return i < 0 ? std::max<int64_t>(0, i < -n ? 0 : i + n) : i;
  };
  const int64_t first = place(start, 0), last = std::min(place(stop, n), n);
  if (first > n || first > last) return {0, 0, false};
  return {offset_of(text, first), offset_of(text, last), true};
}

int64_t find_in_window(const Str& text, Args& a, bool from_right) {
  const Str& wanted = need_text(a[0], "what to find");
  const Window w = window(text, a[1], a[2]);
  if (!w.valid) return -1;
  text.heap.work(text.bytes.size());
  const auto view = std::string_view(text.bytes).substr(w.from, w.to - w.from);
  const size_t at = from_right ? rfind(view, wanted.bytes) : chat::find(view, wanted.bytes);
  return at == kNotFound ? -1 : point_at(text, w.from + at);
}

Value find_text(I&, V self, Args& a) { return Value::integer(find_in_window(text_of(self), a, false)); }
Value rfind_method(I&, V self, Args& a) { return Value::integer(find_in_window(text_of(self), a, true)); }
Value found(int64_t at) {
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}
Value index_method(I&, V self, Args& a) { return found(find_in_window(text_of(self), a, false)); }
Value rindex_method(I&, V self, Args& a) { return found(find_in_window(text_of(self), a, true)); }

Value count_method(I& in, V self, Args& a) {
  const Str& text = text_of(self);
  const Str& wanted = need_text(a[0], "what to count");
  const Window w = window(text, a[1], a[2]);
  if (!w.valid) return Value::integer(0);
  const auto view = std::string_view(text.bytes).substr(w.from, w.to - w.from);
  in.heap().work(view.size());
  if (wanted.bytes.empty()) return Value::integer(count_points(view) + 1);
  int64_t n = 0;
  for (size_t at = chat::find(view, wanted.bytes); at != kNotFound;
       at = chat::find(view, wanted.bytes, at + wanted.bytes.size())) {
    in.heap().step();
    ++n;
  }
  return Value::integer(n);
}

template <bool at_start>
Value begins_or_ends(I& in, V self, Args& a) {
  const Str& text = text_of(self);
  const Window w = window(text, a[1], a[2]);
  const auto view = w.valid ? std::string_view(text.bytes).substr(w.from, w.to - w.from) : std::string_view();
  const auto fits = [&](V affix) {
    const std::string& bytes = need_text(affix, at_start ? "startswith's prefix" : "endswith's suffix").bytes;
    in.heap().work(bytes.size());
    return w.valid && (at_start ? view.starts_with(bytes) : view.ends_with(bytes));
  };
  if (!a[0].is(Kind::tuple)) return Value::boolean(fits(a[0]));
  bool any = false;
  for (V affix : a[0].as<Seq>().items) any = any || fits(affix);
  return Value::boolean(any);
}

Value replace_method(I& in, V self, Args& a) {
  const Str& text = text_of(self);
  const Value to = text.markup ? escape(in.heap(), need_text(a[1], "replace's new")) : a[1];
  return replace(in.heap(), text, need_text(a[0], "replace's old"), need_text(to, "replace's new"),
                 optional_integer(a[2], -1, "replace's count"));
}

Value join_method(I& in, V self, Args& a) {
  const Str& between = text_of(self);
  if (!iterable(a[0])) fail(std::string("join needs something to walk, not '") + type_name(a[0]) + "'");
  const Value items = items_of(in.heap(), a[0]);
  TextBuilder out(in.heap());
  bool first = true;
  for (V item : items.as<Seq>().items) {
    in.heap().step();
    if (!first) out.add(between);
    first = false;
    const Str& text = need_text(item, "what join joins");
    if (between.markup)
      out.add(escape(in.heap(), text));
    else
      out.add(text);
  }
  return out.take(between.markup);
}

Value format_method(I& in, V self, Args& a) { return brace_format(in.heap(), text_of(self), a); }

Value format_map(I& in, V self, Args& a) {
  if (a.positional.size() != 1 || !a.named.empty() || !a[0].is(Kind::dict)) fail("format_map takes one mapping");
  Args named;
  for (const auto& [key, value] : a[0].as<Dict>().items)
    if (key.is_string()) named.named.emplace_back(bytes_of(key), value);
  return brace_format(in.heap(), text_of(self), named);
}

// Whether the string is not empty and all its characters are of a kind.
template <bool (*one)(char32_t)>
Value all_are(I& in, V self, Args&) {
  const std::string& bytes = bytes_of(self);
  in.heap().work(bytes.size());
  for (size_t i = 0; i < bytes.size();)
    if (!one(next_point(bytes, i))) return Value::boolean(false);
  return Value::boolean(!bytes.empty());
}
bool alphanumeric(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }
bool space(char32_t c) { return is_space(c); }
bool alpha(char32_t c) { return is_alpha(c); }
bool decimal(char32_t c) { return is_decimal(c); }
bool digit(char32_t c) { return is_digit(c); }
bool numeric(char32_t c) { return is_numeric(c); }

template <bool (*wanted)(char32_t)>
Value all_cased(I& in, V self, Args&) {
  const std::string& bytes = bytes_of(self);
  in.heap().work(bytes.size());
  bool any = false;
  for (size_t i = 0; i < bytes.size();) {
    const char32_t c = next_point(bytes, i);
    if (!is_cased(c)) continue;
    if (!wanted(c)) return Value::boolean(false);
    any = true;
  }
  return Value::boolean(any);
}
bool upper(char32_t c) { return is_upper(c); }
bool lower(char32_t c) { return is_lower(c); }

Value is_title_method(I&, V self, Args&) {
  const std::string& bytes = bytes_of(self);
  bool any = false, inside = false;
  for (size_t i = 0; i < bytes.size();) {
    const char32_t c = next_point(bytes, i);
    if (is_lower(c) ? !inside : is_cased(c) && inside) return Value::boolean(false);
    inside = is_cased(c);
    any |= inside;
  }
  return Value::boolean(any);
}

Value is_ascii(I&, V self, Args&) {
  const std::string& bytes = bytes_of(self);
  return Value::boolean(
      std::all_of(bytes.begin(), bytes.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}
Value is_printable_method(I&, V self, Args&) {
  const std::string& bytes = bytes_of(self);
  for (size_t i = 0; i < bytes.size();)
    if (!is_printable(next_point(bytes, i))) return Value::boolean(false);
  return Value::boolean(true);
}
Value is_identifier(I&, V self, Args&) {
  const std::string& bytes = bytes_of(self);
  for (size_t i = 0; i < bytes.size();) {
    const bool first = i == 0;
    const char32_t c = next_point(bytes, i);
    if (c != '_' && !is_alpha(c) && (first || !is_numeric(c))) return Value::boolean(false);
  }
  return Value::boolean(!bytes.empty());
}

Value zero_fill(I& in, V self, Args& a) {
  const Str& text = text_of(self);
  const int64_t missing = std::max<int64_t>(0, need_integer(a[0], "a width") - length(text));
  const size_t sign = !text.bytes.empty() && (text.bytes[0] == '+' || text.bytes[0] == '-') ? 1 : 0;
  TextBuilder out(in.heap());
  out.add(text, 0, sign);
  out.fill(missing, "0", true);
  out.add(text, sign, text.bytes.size());
  return out.take(text.markup);
}

template <bool from_right>
Value partition(I& in, V self, Args& a) {
  const Str& text = text_of(self);
  const Str& separator = need_text(a[0], "partition's separator");
  if (separator.bytes.empty()) fail("partition: empty separator");
  in.heap().work(text.bytes.size());
  const size_t at = from_right ? rfind(text.bytes, separator.bytes) : chat::find(text.bytes, separator.bytes);
  const size_t end = text.bytes.size();
  if (at == kNotFound) {
    const Value none = part(text, 0, 0);
    return make_list(in.heap(), Kind::tuple,
                     from_right ? std::vector<Value>{none, none, self} : std::vector<Value>{self, none, none});
  }
  return make_list(
      in.heap(), Kind::tuple,
      {part(text, 0, at), part(text, at, at + separator.bytes.size()), part(text, at + separator.bytes.size(), end)});
}

Value remove_prefix(I&, V self, Args& a) {
  const Str& text = text_of(self);
  const std::string& prefix = need_text(a[0], "a prefix").bytes;
  return part(text, text.bytes.starts_with(prefix) ? prefix.size() : 0, text.bytes.size());
}
Value remove_suffix(I&, V self, Args& a) {
  const Str& text = text_of(self);
  const std::string& suffix = need_text(a[0], "a suffix").bytes;
  return part(text, 0, text.bytes.size() - (text.bytes.ends_with(suffix) ? suffix.size() : 0));
}

Value expand_tabs(I& in, V self, Args& a) {
  const Str& text = text_of(self);
  const int64_t size = optional_integer(a[0], 8, "the tab size");
  TextBuilder out(in.heap());
  in.heap().step(static_cast<int64_t>(text.bytes.size() / 8));
  int64_t column = 0;
  for (size_t i = 0; i < text.bytes.size();) {
    const size_t start = i;
    const char32_t c = next_point(text.bytes, i);
    if (c == '\t') {
      const int64_t n = size > 0 ? size - column % size : 0;
      out.fill(n, " ", text.own_at(start));
      column += n;
      continue;
    }
    out.add(text, start, i);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return out.take(text.markup);
}

Value title_method(I&, V self, Args&) { return title(text_of(self)); }

constexpr Builtin kMethods[] = {
    {"strip", strip_method<Side::both>, "/ chars", 0},
    {"lstrip", strip_method<Side::left>, "/ chars", 0},
    {"rstrip", strip_method<Side::right>, "/ chars", 0},
    {"swapcase", swap_case_method, "", 0},
    {"title", title_method, "", 0},
    {"split", split_method, "sep maxsplit", 0},
    {"rsplit", rsplit_method, "sep maxsplit", 0},
    {"splitlines", split_lines_method, "keepends", 0},
    {"startswith", begins_or_ends<true>, "/ prefix start end", 1},
    {"endswith", begins_or_ends<false>, "/ suffix start end", 1},
    {"replace", replace_method, "/ old new count", 2},
    {"join", join_method, "/ iterable", 1},
    {"format", format_method, "*", 0},
    {"format_map", format_map, "*", 0},
    {"find", find_text, "/ sub start end", 1},
    {"rfind", rfind_method, "/ sub start end", 1},
    {"index", index_method, "/ sub start end", 1},
    {"rindex", rindex_method, "/ sub start end", 1},
    {"count", count_method, "/ sub start end", 1},
    {"ljust", pad_method<Side::left>, "/ width fillchar", 1},
    {"rjust", pad_method<Side::right>, "/ width fillchar", 1},
    {"center", pad_method<Side::both>, "/ width fillchar", 1},
    {"zfill", zero_fill, "/ width", 1},
    {"partition", partition<false>, "/ sep", 1},
    {"rpartition", partition<true>, "/ sep", 1},
    {"removeprefix", remove_prefix, "/ prefix", 1},
    {"removesuffix", remove_suffix, "/ suffix", 1},
    {"expandtabs", expand_tabs, "tabsize", 0},
    {"isalnum", all_are<alphanumeric>, "", 0},
    {"isalpha", all_are<alpha>, "", 0},
    {"isdecimal", all_are<decimal>, "", 0},
    {"isdigit", all_are<digit>, "", 0},
    {"isnumeric", all_are<numeric>, "", 0},
    {"isspace", all_are<space>, "", 0},
    {"isupper", all_cased<upper>, "", 0},
    {"islower", all_cased<lower>, "", 0},
    {"istitle", is_title_method, "", 0},
    {"isascii", is_ascii, "", 0},
    {"isprintable", is_printable_method, "", 0},
    {"isidentifier", is_identifier, "", 0},
};

}  // namespace

std::span<const Builtin> string_methods() noexcept { return kMethods; }

}  // namespace assay::chat
