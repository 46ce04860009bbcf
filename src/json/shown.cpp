// See shown.h.
#include "json/shown.h"

#include <fmt/format.h>

namespace assay::json_text {

std::string shown(const boost::json::value& value) {
  constexpr size_t kBytesMax = 60;
  if (const double* number = value.if_double()) return fmt::format("{}", *number);
  std::string text = boost::json::serialize(value);
  if (text.size() <= kBytesMax) return text;
  size_t end = kBytesMax - 3;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // inside a character of UTF-8
  text.resize(end);
  return text + "...";
}

}  // namespace assay::json_text
