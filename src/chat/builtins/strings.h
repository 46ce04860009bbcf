// Python's string operations on values that remember where each byte came from. Indices are code
// points.
#pragma once

#include <optional>

#include "chat/builtins/unicode.h"
#include "chat/value.h"

namespace assay::chat {

constexpr size_t kNotFound = std::string_view::npos;

int64_t length(const Str& text);                      // in code points
size_t offset_of(const Str& text, int64_t point);     // of the byte where that code point starts
int64_t point_at(const Str& text, size_t offset);     // and back
Value part(const Str& text, size_t from, size_t to);  // by bytes; keeps origin and markup
Value character(const Str& text, size_t& offset);     // the one at offset, which moves on

size_t find(std::string_view hay, std::string_view needle, size_t from = 0);  // linear time
size_t rfind(std::string_view hay, std::string_view needle);                  // linear time

enum class Side { left, right, both };
Value strip(const Str& text, Side side, const Str* chars);  // nullptr: white space
Value change_case(const Str& text, Case which);
Value title(const Str& text);           // str.title()
Value title_of_words(const Str& text);  // Jinja's filter: words begin after blanks, hyphens, brackets
Value swap_case(const Str& text);
Value capitalize(const Str& text);
Value replace(Heap& heap, const Str& text, const Str& from, const Str& to,
              int64_t count);  // count < 0: all
Value split(const Str& text, const Str* separator,
            int64_t n_max);  // nullptr: white space; n_max < 0: all
Value rsplit(const Str& text, const Str* separator, int64_t n_max);
Value split_lines(const Str& text, bool keep_ends);
Value pad(const Str& text, int64_t width, const Str* fill,
          Side text_side);                  // both: centred as Python does
Value plain(const Str& text);               // the same, no Markup
Value escape(Heap& heap, const Str& text);  // HTML; a Markup stays as it is
Value repeat(const Str& text, int64_t n);
Value concat(const Str& a, const Str& b);  // +, with Markup's escaping

}  // namespace assay::chat
