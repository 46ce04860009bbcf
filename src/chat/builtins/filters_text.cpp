// Filters that make text of text.
#include <algorithm>
#include <array>

#include "chat/attributes.h"
#include "chat/builtins/builtins.h"
#include "chat/builtins/format.h"
#include "chat/interpreter.h"
#include "chat/ops.h"
#include "chat/print.h"

namespace assay::chat {

namespace {

using I = Interpreter;
using V = const Value&;

template <Case which>
Value in_case(I& in, V self, Args&) {
  const Value text = soft_text(in.heap(), self);
  return change_case(text_of(text), which);
}
Value capitalise(I& in, V self, Args&) {
  const Value text = soft_text(in.heap(), self);
  return capitalize(text_of(text));
}
Value title_filter(I& in, V self, Args&) {
  const Value text = to_text(in.heap(), self);
  return title_of_words(text_of(text));
}
Value trim(I& in, V self, Args& a) {
  const Value text = soft_text(in.heap(), self);
  return strip(text_of(text), Side::both, optional_text(a[0], "trim's chars"));
}
Value center(I& in, V self, Args& a) {
  const Value text = soft_text(in.heap(), self);
  return pad(text_of(text), a[0].is_absent() ? 80 : need_integer(a[0], "a width"), nullptr, Side::both);
}
Value string(I& in, V self, Args&) { return soft_text(in.heap(), self); }
Value escape_filter(I& in, V self, Args&) {
  const Value text = soft_text(in.heap(), self);
  return escape(in.heap(), text_of(text));
}
Value force_escape(I& in, V self, Args&) {
  const Value text = to_text(in.heap(), self);
  return escape(in.heap(), text_of(text));
}
Value safe(I& in, V self, Args&) {
  const Value text = to_text(in.heap(), self);
  TextBuilder out(in.heap());
  out.add(text);
  return out.take(true);
}

Value replace_filter(I& in, V self, Args& a) {
  const int64_t count = a[2].is_absent() || a[2].is(Kind::none) ? -1 : need_integer(a[2], "replace's count");
  const Value text = to_text(in.heap(), self), from = to_text(in.heap(), a[0]), to = to_text(in.heap(), a[1]);
  return replace(in.heap(), text_of(text), text_of(from), text_of(to), count);
}

Value format_filter(I& in, V self, Args& a) {
  if (!a.positional.empty() && !a.named.empty()) fail("format takes positional or keyword arguments, not both");
  const Value text = soft_text(in.heap(), self);
  if (a.named.empty())
    return percent_format(in.heap(), text_of(text), make_list(in.heap(), Kind::tuple, std::move(a.positional)));
  DictBuilder named(in.heap());
  for (auto& [name, value] : a.named) named.push(make_text(in.heap(), name, true), std::move(value));
  return percent_format(in.heap(), text_of(text), named.take());
}

Value indent(I& in, V self, Args& a) {
  const Str& text = need_text(self, "indent's value");
  Value unit = a[0];
  if (!unit.is_string()) {
    TextBuilder blanks(in.heap());
    blanks.fill(unit.is_absent() ? 4 : need_integer(unit, "indent's width"), " ", true);
    unit = blanks.take();
  }
  const Value lines = split_lines(text_of(concat(text, text_of(make_text(in.heap(), "\n", true)))), false);
  const bool blank = truthy(a[2]);
  TextBuilder out(in.heap());
  if (truthy(a[1])) out.add(unit);
  const auto& items = lines.as<Seq>().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.add("\n", true);
    if (i > 0 && (blank || !bytes_of(items[i]).empty())) out.add(unit);
    out.add(items[i]);
  }
  return out.take(text.markup);
}

Value truncate(I& in, V self, Args& a) {
  const int64_t n = a[0].is_absent() ? 255 : need_integer(a[0], "truncate's length");
  const Value end = a[2].is_absent() ? make_text(in.heap(), "...", true) : a[2];
  const int64_t n_end = length(need_text(end, "truncate's end"));
  const int64_t leeway = a[3].is_absent() || a[3].is(Kind::none) ? 5 : need_integer(a[3], "truncate's leeway");
  if (n < n_end) fail("truncate needs a length of at least " + std::to_string(n_end));
  if (leeway < 0) fail("truncate needs a leeway of at least 0");
  if (size_of(self) <= n || size_of(self) - n <= leeway) return self;
  const Str& text = need_text(self, "truncate's value");
  Value kept = part(text, 0, offset_of(text, n - n_end));
  if (!truthy(a[1])) {
    const size_t blank = rfind(bytes_of(kept), " ");
    if (blank != kNotFound) kept = part(text_of(kept), 0, blank);
  }
  return concat(text_of(kept), text_of(end));
}

Value word_count(I& in, V self, Args&) {
  const Value text = soft_text(in.heap(), self);
  int64_t n = 0;
  bool inside = false;
  in.heap().work(bytes_of(text).size());
  for (size_t i = 0; i < bytes_of(text).size();) {
    const bool word = is_word(next_point(bytes_of(text), i));
    n += word && !inside;
    inside = word;
  }
  return Value::integer(n);
}

void quote_url(TextBuilder& out, const Str& text, bool query) {
  constexpr std::string_view kPlain = "_.-~";
  text.heap.step(static_cast<int64_t>(text.bytes.size() / 8));
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    const auto c = static_cast<unsigned char>(text.bytes[i]);
    const bool own = text.own_at(i);
    if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
        kPlain.find(static_cast<char>(c)) != kNotFound || (c == '/' && !query)) {
      out.add(text, i, i + 1);
    } else if (c == ' ' && query) {
      out.add("+", own);
    } else {
      const std::array<char, 3> code = {'%', "0123456789ABCDEF"[c >> 4], "0123456789ABCDEF"[c & 15]};
      out.add({code.data(), code.size()}, own);
    }
  }
}

Value url_encode(I& in, V self, Args&) {
  TextBuilder out(in.heap());
  const auto add = [&](V value, bool query) {
    const Value text = to_text(in.heap(), value);
    quote_url(out, text_of(text), query);
  };
  if (self.is_string() || !iterable(self)) {
    add(self, false);
    return out.take();
  }
  const auto pair = [&](V key, V value) {
    if (!out.bytes().empty()) out.add("&", true);
    add(key, true);
    out.add("=", true);
    add(value, true);
  };
  if (self.is(Kind::dict)) {
    for (const auto& [key, value] : self.as<Dict>().items) pair(key, value);
    return out.take();
  }
  const Value items = items_of(in.heap(), self);
  for (V item : items.as<Seq>().items) {
    const Value parts = items_of(in.heap(), item);
    if (parts.as<Seq>().items.size() != 2) fail("urlencode needs pairs");
    pair(parts.as<Seq>().items[0], parts.as<Seq>().items[1]);
  }
  return out.take();
}

Value join(I& in, V self, Args& a) {
  const Value between = a[0].is_absent() ? make_text(in.heap(), "", true) : to_text(in.heap(), a[0]);
  const Value items = items_of(in.heap(), self);
  TextBuilder out(in.heap());
  bool first = true;
  for (V item : items.as<Seq>().items) {
    in.heap().step();
    if (!first) out.add(between);
    first = false;
    write_text(out, walk(in.heap(), item, a[1]));
  }
  return out.take();
}

Value strip_tags(I& in, V self, Args&) {
  const Value source = to_text(in.heap(), self);
  const Str& text = text_of(source);
  // Comments go first, then tags; then blanks are joined and entities become their characters.
  TextBuilder bare(in.heap());
  const auto drop = [&](const Str& from, std::string_view open, std::string_view close) {
    TextBuilder kept(in.heap());
    size_t at = 0;
    for (;;) {
      const size_t start = chat::find(from.bytes, open, at);
      const size_t end = start == kNotFound ? kNotFound : chat::find(from.bytes, close, start);
      if (end == kNotFound) break;
      kept.add(from, at, start);
      at = end + close.size();
    }
    kept.add(from, at, from.bytes.size());
    return kept.take();
  };
  const Value no_comments = drop(text, "<!--", "-->");
  const Value no_tags = drop(text_of(no_comments), "<", ">");
  const Value words = split(text_of(no_tags), nullptr, -1);
  bool first = true;
  for (V word : words.as<Seq>().items) {
    if (!first) bare.add(" ", true);
    first = false;
    bare.add(word);
  }
  Value out = bare.take();
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kEntities = {{{"&lt;", "<"},
                                                                                       {"&gt;", ">"},
                                                                                       {"&quot;", "\""},
                                                                                       {"&#34;", "\""},
                                                                                       {"&#39;", "'"},
                                                                                       {"&nbsp;", "\u00A0"},
                                                                                       {"&amp;", "&"}}};
  for (const auto& [entity, character] : kEntities)
    out = replace(in.heap(), text_of(out), text_of(make_text(in.heap(), entity, false)),
                  text_of(make_text(in.heap(), character, false)), -1);
  return out;
}

Value xml_attributes(I& in, V self, Args& a) {
  if (!self.is(Kind::dict)) fail("xmlattr needs a mapping");
  TextBuilder out(in.heap());
  const bool leading_blank = a[0].is_absent() || truthy(a[0]);
  for (const auto& [key, value] : self.as<Dict>().items) {
    if (value.is(Kind::none) || value.is_undefined()) continue;
    const Value name = to_text(in.heap(), key), text = soft_text(in.heap(), value);
    if (bytes_of(name).find_first_of(" \t\n\r\f\v/>=") != kNotFound) fail("invalid character in an attribute's name");
    if (leading_blank || !out.bytes().empty()) out.add(" ", true);
    out.add(escape(in.heap(), text_of(name)));
    out.add("=\"", true);
    out.add(escape(in.heap(), text_of(text)));
    out.add("\"", true);
  }
  return out.take();
}

constexpr Builtin kFiltersAndMethods[] = {
    {"upper", in_case<Case::upper>, "", 0},
    {"lower", in_case<Case::lower>, "", 0},
    {"capitalize", capitalise, "", 0},
};

constexpr Builtin kTextFilters[] = {
    {"title", title_filter, "", 0},
    {"trim", trim, "chars", 0},
    {"center", center, "width", 0},
    {"string", string, "", 0},
    {"escape", escape_filter, "", 0},
    {"e", escape_filter, "", 0},
    {"forceescape", force_escape, "", 0},
    {"safe", safe, "", 0},
    {"replace", replace_filter, "old new count", 2},
    {"format", format_filter, "*", 0},
    {"indent", indent, "width first blank", 0},
    {"truncate", truncate, "length killwords end leeway", 0},
    {"wordcount", word_count, "", 0},
    {"urlencode", url_encode, "", 0},
    {"join", join, "d attribute", 0},
    {"striptags", strip_tags, "", 0},
    {"xmlattr", xml_attributes, "autospace", 0},
};

}  // namespace

std::span<const Builtin> text_filters_and_methods() noexcept { return kFiltersAndMethods; }
std::span<const Builtin> text_filters() noexcept { return kTextFilters; }

}  // namespace assay::chat
