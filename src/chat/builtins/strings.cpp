// See strings.h.
#include "chat/builtins/strings.h"

#include <string.h>  // memmem

#include <algorithm>

#include "base/utf8.h"

namespace assay::chat {

int64_t length(const Str& text) {
  if (text.n_points < 0) {
    text.heap.work(text.bytes.size());
    text.n_points = count_points(text.bytes);
  }
  return text.n_points;
}

size_t offset_of(const Str& text, int64_t point) {
  const std::string& bytes = text.bytes;
  if (length(text) == static_cast<int64_t>(bytes.size())) return static_cast<size_t>(point);
  size_t offset = 0;
  for (; point > 0 && offset < bytes.size(); --point) next_point(bytes, offset);
  text.heap.work(offset);
  return offset;
}

int64_t point_at(const Str& text, size_t offset) {
  if (length(text) == static_cast<int64_t>(text.bytes.size())) return static_cast<int64_t>(offset);
  text.heap.work(offset);
  return count_points(std::string_view(text.bytes).substr(0, offset));
}

Value part(const Str& text, size_t from, size_t to) {
  TextBuilder builder(text.heap);
  builder.add(text, from, to);
  return builder.take(text.markup);
}

Value character(const Str& text, size_t& offset) {
  const size_t from = offset;
  const char c = text.bytes[from];
  if (static_cast<unsigned char>(c) < 0x80 && !text.markup) {
    ++offset;
    return text.heap.character(c, text.own_at(from));
  }
  next_point(text.bytes, offset);
  return part(text, from, offset);
}

size_t find(std::string_view hay, std::string_view needle, size_t from) {
  if (from > hay.size()) return kNotFound;
  if (needle.empty()) return from;
  const void* at = memmem(hay.data() + from, hay.size() - from, needle.data(), needle.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - hay.data()) : kNotFound;
}

// Knuth, Morris and Pratt from the right: the library's rfind takes quadratic time on hostile text.
size_t rfind(std::string_view hay, std::string_view needle) {
  const size_t n = needle.size();
  if (n == 0) return hay.size();
  if (n > hay.size()) return kNotFound;
  const auto wanted = [&](size_t i) { return needle[n - 1 - i]; };
  std::vector<size_t> border(n, 0);
  for (size_t i = 1, k = 0; i < n; ++i) {
    while (k > 0 && wanted(i) != wanted(k)) k = border[k - 1];
    if (wanted(i) == wanted(k)) ++k;
    border[i] = k;
  }
  for (size_t i = 0, k = 0; i < hay.size(); ++i) {
    const char c = hay[hay.size() - 1 - i];
    while (k > 0 && c != wanted(k)) k = border[k - 1];
    if (c == wanted(k)) ++k;
    if (k == n) return hay.size() - 1 - i;
  }
  return kNotFound;
}

Value strip(const Str& text, Side side, const Str* chars) {
  std::vector<char32_t> set;
  if (chars) {
    for (size_t i = 0; i < chars->bytes.size();) set.push_back(next_point(chars->bytes, i));
    std::sort(set.begin(), set.end());
  }
  const auto goes = [&](char32_t c) { return chars ? std::binary_search(set.begin(), set.end(), c) : is_space(c); };
  const std::string& bytes = text.bytes;
  text.heap.work(bytes.size());
  size_t from = 0, to = bytes.size();
  if (side != Side::right)
    for (size_t i = 0; from < to && goes(next_point(bytes, i));) from = i;
  if (side != Side::left)
    while (to > from) {
      const size_t start = previous_offset(bytes, to);
      size_t i = start;
      if (!goes(next_point(bytes, i))) break;
      to = start;
    }
  return part(text, from, to);
}

namespace {

// The small sigma that ends a word is another letter than the one inside: the only case rule that
// looks at its neighbours.
bool is_final_sigma(std::string_view bytes, size_t start, size_t end) {
  bool cased_before = false;
  for (size_t i = start; i > 0;) {
    i = previous_offset(bytes, i);
    size_t j = i;
    const char32_t c = next_point(bytes, j);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  while (end < bytes.size()) {
    const char32_t c = next_point(bytes, end);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

class CaseWriter {
 public:
  explicit CaseWriter(const Str& text) : text_(text), builder_(text.heap), last_(text.bytes.size()) {}
  // The text that the sigma rule looks at: what Python had cut out before it changed the case.
  void within(size_t first, size_t last) {
    first_ = first;
    last_ = last;
  }
  void add(size_t start, size_t end, char32_t c, Case which) {
    letter_.clear();
    if (c == 0x3A3 && which == Case::lower) {
      text_.heap.step();
      const auto seen = std::string_view(text_.bytes).substr(first_, last_ - first_);
      base::append_utf8(letter_, is_final_sigma(seen, start - first_, end - first_) ? 0x3C2 : 0x3C3);
    } else {
      append_case(letter_, c, which);
    }
    builder_.add(letter_, text_.own_at(start));
  }
  Value take() { return builder_.take(text_.markup); }

 private:
  const Str& text_;
  TextBuilder builder_;
  size_t first_ = 0, last_;
  std::string letter_;
};

}  // namespace

Value change_case(const Str& text, Case which) {
  CaseWriter writer(text);
  text.heap.step(static_cast<int64_t>(text.bytes.size() / 8));
  for (size_t i = 0; i < text.bytes.size();) {
    const size_t start = i;
    const char32_t c = next_point(text.bytes, i);
    writer.add(start, i, c, which);
  }
  return writer.take();
}

Value capitalize(const Str& text) {
  CaseWriter writer(text);
  text.heap.step(static_cast<int64_t>(text.bytes.size() / 8));
  for (size_t i = 0; i < text.bytes.size();) {
    const size_t start = i;
    const char32_t c = next_point(text.bytes, i);
    writer.add(start, i, c, start == 0 ? Case::title : Case::lower);
  }
  return writer.take();
}

Value title(const Str& text) {
  CaseWriter writer(text);
  text.heap.step(static_cast<int64_t>(text.bytes.size() / 8));
  bool inside = false;
  for (size_t i = 0; i < text.bytes.size();) {
    const size_t start = i;
    const char32_t c = next_point(text.bytes, i);
    writer.add(start, i, c, inside ? Case::lower : Case::title);
    inside = is_cased(c);
  }
  return writer.take();
}

Value title_of_words(const Str& text) {
  const auto breaks = [](char32_t c) {
    return c == '-' || is_space(c) || c == '(' || c == '{' || c == '[' || c == '<';
  };
  CaseWriter writer(text);
  const std::string& bytes = text.bytes;
  text.heap.step(static_cast<int64_t>(bytes.size() / 8));
  for (size_t i = 0; i < bytes.size();) {
    size_t start = i;
    char32_t c = next_point(bytes, i);
    writer.add(start, i, c, Case::upper);
    if (breaks(c)) continue;
    const size_t second = i;
    size_t end = i;
    for (size_t j = i; end < bytes.size() && !breaks(next_point(bytes, j));) end = j;
    writer.within(second, end);
    while (i < end) {
      start = i;
      c = next_point(bytes, i);
      writer.add(start, i, c, Case::lower);
    }
  }
  return writer.take();
}

Value swap_case(const Str& text) {
  CaseWriter writer(text);
  text.heap.step(static_cast<int64_t>(text.bytes.size() / 8));
  for (size_t i = 0; i < text.bytes.size();) {
    const size_t start = i;
    const char32_t c = next_point(text.bytes, i);
    writer.add(start, i, c, is_upper(c) ? Case::lower : Case::upper);
  }
  return writer.take();
}

Value replace(Heap& heap, const Str& text, const Str& from, const Str& to, int64_t count) {
  TextBuilder builder(heap);
  const std::string& bytes = text.bytes;
  heap.work(bytes.size());
  size_t at = 0;
  if (from.bytes.empty()) {
    for (int64_t n = 0; count < 0 || n < count; ++n) {
      heap.step();
      builder.add(to);
      if (at >= bytes.size()) break;
      const size_t start = at;
      next_point(bytes, at);
      builder.add(text, start, at);
    }
    builder.add(text, at, bytes.size());
    return builder.take(text.markup);
  }
  for (int64_t n = 0; count < 0 || n < count; ++n) {
    const size_t found = chat::find(bytes, from.bytes, at);
    if (found == kNotFound) break;
    heap.step();
    builder.add(text, at, found);
    builder.add(to);
    at = found + from.bytes.size();
  }
  builder.add(text, at, bytes.size());
  return builder.take(text.markup);
}

namespace {

Value split_blanks(const Str& text, int64_t n_max) {
  ListBuilder parts(text.heap);
  const std::string& bytes = text.bytes;
  text.heap.work(bytes.size());
  size_t i = 0;
  const auto skip = [&] {
    for (size_t j = i; i < bytes.size() && is_space(next_point(bytes, j));) i = j;
  };
  for (skip(); i < bytes.size(); skip()) {
    const size_t start = i;
    if (n_max >= 0 && static_cast<int64_t>(parts.items.size()) >= n_max) {
      parts.push(part(text, start, bytes.size()));
      break;
    }
    for (size_t j = i; i < bytes.size() && !is_space(next_point(bytes, j));) i = j;
    parts.push(part(text, start, i));
  }
  return parts.take(Kind::list);
}

Value rsplit_blanks(const Str& text, int64_t n_max) {
  ListBuilder parts(text.heap);
  const std::string& bytes = text.bytes;
  text.heap.work(bytes.size());
  size_t end = bytes.size();
  const auto back_while = [&](bool space) {
    while (end > 0) {
      const size_t before = previous_offset(bytes, end);
      size_t j = before;
      if (is_space(next_point(bytes, j)) != space) break;
      end = before;
    }
  };
  for (back_while(true); end > 0; back_while(true)) {
    const size_t stop = end;
    if (n_max >= 0 && static_cast<int64_t>(parts.items.size()) >= n_max) {
      parts.push(part(text, 0, stop));
      break;
    }
    back_while(false);
    parts.push(part(text, end, stop));
  }
  std::reverse(parts.items.begin(), parts.items.end());
  return parts.take(Kind::list);
}

}  // namespace

Value split(const Str& text, const Str* separator, int64_t n_max) {
  if (!separator) return split_blanks(text, n_max);
  if (separator->bytes.empty()) fail("split: empty separator");
  ListBuilder parts(text.heap);
  text.heap.work(text.bytes.size());
  size_t at = 0;
  while (n_max < 0 || static_cast<int64_t>(parts.items.size()) < n_max) {
    const size_t found = chat::find(text.bytes, separator->bytes, at);
    if (found == kNotFound) break;
    parts.push(part(text, at, found));
    at = found + separator->bytes.size();
  }
  parts.push(part(text, at, text.bytes.size()));
  return parts.take(Kind::list);
}

Value rsplit(const Str& text, const Str* separator, int64_t n_max) {
  if (!separator) return rsplit_blanks(text, n_max);
  if (separator->bytes.empty()) fail("rsplit: empty separator");
  ListBuilder parts(text.heap);
  size_t end = text.bytes.size();
  while (n_max < 0 || static_cast<int64_t>(parts.items.size()) < n_max) {
    text.heap.work(separator->bytes.size());
    const size_t found = rfind(std::string_view(text.bytes).substr(0, end), separator->bytes);
    if (found == kNotFound) break;
    parts.push(part(text, found + separator->bytes.size(), end));
    end = found;
  }
  text.heap.work(text.bytes.size());
  parts.push(part(text, 0, end));
  std::reverse(parts.items.begin(), parts.items.end());
  return parts.take(Kind::list);
}

Value split_lines(const Str& text, bool keep_ends) {
  ListBuilder lines(text.heap);
  const std::string& bytes = text.bytes;
  text.heap.work(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const size_t start = i;
    size_t end = i;
    while (i < bytes.size()) {
      end = i;
      const char32_t c = next_point(bytes, i);
      if (is_line_break(c)) {
        if (c == '\r' && i < bytes.size() && bytes[i] == '\n') ++i;
        break;
      }
      end = i;
    }
    lines.push(part(text, start, keep_ends ? i : end));
  }
  return lines.take(Kind::list);
}

Value pad(const Str& text, int64_t width, const Str* fill, Side text_side) {
  const int64_t missing = width > length(text) ? width - length(text) : 0;
  const std::string unit = fill ? fill->bytes : " ";
  const bool own = fill ? fill->all_own() : true;
  const int64_t left = text_side == Side::left    ? 0
                       : text_side == Side::right ? missing
                                                  : missing / 2 + (missing & width & 1);
  TextBuilder builder(text.heap);
  builder.fill(left, unit, own);
  builder.add(text);
  builder.fill(missing - left, unit, own);
  return builder.take(text.markup);
}

Value plain(const Str& text) {
  TextBuilder builder(text.heap);
  builder.add(text);
  return builder.take();
}

Value escape(Heap& heap, const Str& text) {
  if (text.markup) return part(text, 0, text.bytes.size());
  TextBuilder builder(heap);
  const std::string& bytes = text.bytes;
  size_t plain = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char* entity = nullptr;
    switch (bytes[i]) {
      case '&': entity = "&amp;"; break;
      case '<': entity = "&lt;"; break;
      case '>': entity = "&gt;"; break;
      case '\'': entity = "&#39;"; break;
      case '"': entity = "&#34;"; break;
      default: continue;
    }
    builder.add(text, plain, i);
    builder.add(entity, text.own_at(i));
    plain = i + 1;
  }
  builder.add(text, plain, bytes.size());
  return builder.take(true);
}

Value repeat(const Str& text, int64_t n) {
  TextBuilder builder(text.heap);
  const auto size = static_cast<int64_t>(text.bytes.size());
  if (text.runs.empty()) {
    builder.fill(n, text.bytes, text.own);
  } else if (n > 0) {
    if (n > text.heap.limits().value_bytes_max / size) text.heap.need(text.heap.limits().value_bytes_max + 1);
    text.heap.need(n * size);
    for (int64_t i = 0; i < n; ++i) {
      text.heap.step();
      builder.add(text);
    }
  }
  return builder.take(text.markup);
}

Value concat(const Str& a, const Str& b) {
  TextBuilder builder(a.heap);
  if (a.markup == b.markup) {
    builder.add(a);
    builder.add(b);
    return builder.take(a.markup);
  }
  builder.add(a.markup ? a : text_of(escape(a.heap, a)));
  builder.add(b.markup ? b : text_of(escape(b.heap, b)));
  return builder.take(true);
}

}  // namespace assay::chat
