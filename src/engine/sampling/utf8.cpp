// See assay/utf8.h.
#include "assay/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "assay/error.h"
#include "base/utf8.h"

namespace assay {

std::optional<size_t> find_invalid_utf8(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const base::Char c = base::char_at(text, i);
    if (c.state != base::CharState::whole) return i;
    i += static_cast<size_t>(c.length);
  }
  return std::nullopt;
}

void require_utf8(std::string_view text, std::string_view what) {
  if (const auto at = find_invalid_utf8(text)) {
    throw Error(Errc::bad_request,
                fmt::format("{} is not UTF-8: byte 0x{:02X} at offset {}; convert it first, e.g. with iconv", what,
                            static_cast<uint8_t>(text[*at]), *at));
  }
}

namespace {

enum class Keeps { nothing, lines };

void append_printable(std::string& out, std::string_view text, Keeps keeps) {
  for (size_t i = 0; i < text.size();) {
    const base::Char c = base::char_at(text, i);
    const auto n = static_cast<size_t>(c.length);
    if (c.state != base::CharState::whole) {
      out += fmt::format("<0x{:02X}>", static_cast<uint8_t>(text[i]));
      i += 1;
      continue;
    }
    const bool is_control = c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0);
    const bool is_layout = c.code == '\n' || c.code == '\t';
    if (!is_control || (is_layout && keeps == Keeps::lines)) {
      out.append(text, i, n);
    } else if (is_layout || c.code == '\r') {
      out += c.code == '\n' ? "\\n" : c.code == '\t' ? "\\t" : "\\r";
    } else {
      out += fmt::format("\\x{:02x}", c.code);
    }
    i += n;
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  append_printable(out, text, Keeps::nothing);
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  append_printable(out, text, Keeps::lines);
  return out;
}

std::string quoted_text(std::string_view text) {
  std::string out = "\"";
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of("\"\\", begin), text.size());
    append_printable(out, text.substr(begin, end - begin), Keeps::nothing);
    if (end < text.size()) out += {'\\', text[end]};
    begin = end + 1;
  }
  return out + '"';
}

std::string json_without_controls(std::string json) {
  const auto is_control = [&](size_t i) {
    const auto byte = static_cast<uint8_t>(json[i]);
    if (byte == 0x7F) return true;
    return byte == 0xC2 && i + 1 < json.size() && static_cast<uint8_t>(json[i + 1]) < 0xA0;
  };
  std::string out;
  size_t done = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    if (!is_control(i)) continue;
    out.append(json, done, i - done);
    const auto code = static_cast<uint8_t>(json[i] == 0x7F ? json[i] : json[++i]);
    out += fmt::format("\\u{:04x}", code);
    done = i + 1;
  }
  if (done == 0) return json;
  return out.append(json, done);
}

}  // namespace assay
