// See unicode.h.
#include "chat/builtins/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/utf8.h"
#include "chat/builtins/special_casing.h"

namespace assay::chat {

int64_t count_points(std::string_view text) noexcept {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

char32_t next_point(std::string_view text, size_t& offset) noexcept {
  const base::Char c = base::char_at(text, offset);
  offset += static_cast<size_t>(c.length);
  return c.code;
}

namespace {

utf8proc_category_t category(char32_t c) noexcept { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

struct Span {
  char32_t first, last;
};

// Digits that are no decimal digits (superscripts, circled numbers, ...): Numeric_Type=Digit.
constexpr Span kOtherDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                 {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                 {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                 {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                 {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

// Ideographs that stand for numbers.
constexpr char32_t kNumerals[] = {0x3405, 0x3483, 0x382A, 0x3B4D, 0x4E00, 0x4E03, 0x4E07, 0x4E09, 0x4E24, 0x4E5D,
                                  0x4E8C, 0x4E94, 0x4E96, 0x4EBF, 0x4EC0, 0x4EDF, 0x4EE8, 0x4F0D, 0x4F70, 0x5104,
                                  0x5146, 0x5169, 0x516B, 0x516D, 0x5341, 0x5343, 0x5344, 0x5345, 0x534C, 0x53C1,
                                  0x53C2, 0x53C3, 0x53C4, 0x56DB, 0x58F1, 0x58F9, 0x5E7A, 0x5EFE, 0x5EFF, 0x5F0C,
                                  0x5F0D, 0x5F0E, 0x5F10, 0x62FE, 0x634C, 0x67D2, 0x6F06, 0x7396, 0x767E, 0x8086,
                                  0x842C, 0x8CAE, 0x8CB3, 0x8D30, 0x9621, 0x9646, 0x964C, 0x9678, 0x96F6};

const SpecialCase* special(char32_t c) noexcept {
  if (c < 0x80) return nullptr;
  const auto it = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                   [](const SpecialCase& s, char32_t wanted) { return s.from < wanted; });
  return it != std::end(kSpecialCases) && it->from == c ? it : nullptr;
}

}  // namespace

bool is_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) noexcept {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) noexcept {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) noexcept { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) noexcept {
  return is_decimal(c) || std::any_of(std::begin(kOtherDigits), std::end(kOtherDigits),
                                      [c](const Span& span) { return c >= span.first && c <= span.last; });
}

bool is_numeric(char32_t c) noexcept {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO ||
         std::binary_search(std::begin(kNumerals), std::end(kNumerals), c);
}

bool is_upper(char32_t c) noexcept {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_lower(char32_t c) noexcept {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) ||
         (c >= 0x2C0 && c <= 0x2C1) || (c >= 0x2E0 && c <= 0x2E4) || c == 0x345 || c == 0x37A ||
         (c >= 0x1D2C && c <= 0x1D6A) || c == 0x1D78 || (c >= 0x1D9B && c <= 0x1DBF) || c == 0x2071 || c == 0x207F ||
         (c >= 0x2090 && c <= 0x209C) || (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9) ||
         (c >= 0x2C7C && c <= 0x2C7D) || (c >= 0xA69C && c <= 0xA69D) || c == 0xA770 || (c >= 0xA7F8 && c <= 0xA7F9) ||
         (c >= 0xAB5C && c <= 0xAB5F);
}

bool is_title(char32_t c) noexcept { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) noexcept {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_case_ignorable(char32_t c) noexcept {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F || c == 0x5F4 || c == 0x2018 ||
             c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 || c == 0xFE55 || c == 0xFF07 ||
             c == 0xFF0E || c == 0xFF1A;
  }
}

int decimal_value(char32_t c) noexcept {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c < 0x80 || !is_decimal(c)) return -1;
  // Unicode lays decimal digits out in runs of ten that start at zero; only the mathematical ones
  // do not start at a multiple of ten.
  if (c >= 0x1D7CE && c <= 0x1D7FF) return static_cast<int>((c - 0x1D7CE) % 10);
  char32_t first = c;
  while (c - first < 9 && is_decimal(first - 1)) --first;
  return static_cast<int>((c - first) % 10);
}

void append_case(std::string& to, char32_t c, Case which) {
  if (c < 0x80) {
    const bool upper = which != Case::lower;
    if (upper && c >= 'a' && c <= 'z') c -= 32;
    if (!upper && c >= 'A' && c <= 'Z') c += 32;
    to.push_back(static_cast<char>(c));
    return;
  }
  if (const SpecialCase* s = special(c)) {
    const char32_t* mapped = which == Case::upper ? s->upper : which == Case::title ? s->title : s->lower;
    for (int i = 0; i < 3 && mapped[i]; ++i) base::append_utf8(to, mapped[i]);
    return;
  }
  const auto point = static_cast<utf8proc_int32_t>(c);
  const auto mapped = which == Case::upper   ? utf8proc_toupper(point)
                      : which == Case::title ? utf8proc_totitle(point)
                                             : utf8proc_tolower(point);
  base::append_utf8(to, static_cast<char32_t>(mapped));
}

}  // namespace assay::chat
