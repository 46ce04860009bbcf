// The check that text is UTF-8.
#include "assay/utf8.h"

#include <fmt/format.h>

#include <cstdint>

#include "assay/error.h"
#include "text/utf8.h"

namespace assay {

std::optional<size_t> find_invalid_utf8(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const text::Char c = text::char_at(text, i);
    if (c.state != text::CharState::whole) return i;
    i += static_cast<size_t>(c.length);
  }
  return std::nullopt;
}

void require_utf8(std::string_view text, std::string_view what) {
  if (const auto at = find_invalid_utf8(text)) {
    throw Error(
        Errc::bad_request,
        fmt::format(
            "{} is not UTF-8: byte 0x{:02X} at offset {}; convert it first, e.g. with iconv", what,
            static_cast<uint8_t>(text[*at]), *at));
  }
}

}  // namespace assay
