// See html.h.
#include "report/html.h"

#include <fmt/format.h>

#include <cmath>

#include "base/utf8.h"

namespace assay::verify {
namespace {

void append_char(std::string& out, std::string_view bytes, uint32_t code) {
  switch (code) {
    case '&': out += "&amp;"; return;
    case '<': out += "&lt;"; return;
    case '>': out += "&gt;"; return;
    case '"': out += "&quot;"; return;
    case '\'': out += "&#39;"; return;
    default: break;
  }
  const bool is_blank = code == '\n' || code == '\t';
  const bool is_control = (code < 0x20 && !is_blank) || (code >= 0x7f && code < 0xa0);
  const bool is_noncharacter = (code >= 0xfdd0 && code <= 0xfdef) || (code & 0xfffe) == 0xfffe;
  if (is_control || is_noncharacter) {
    base::append_utf8(out, base::kReplacementChar);
  } else {
    out += bytes;
  }
}

}  // namespace

std::string escaped(std::string_view text, size_t bytes_max) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const base::Char c = base::char_at(text, at);
    const size_t length = static_cast<size_t>(c.length);
    if (at + length > bytes_max) return out + fmt::format("… ({} bytes in all)", text.size());
    if (c.state == base::CharState::whole) {
      append_char(out, text.substr(at, length), c.code);
    } else {
      base::append_utf8(out, base::kReplacementChar);
    }
    at += length;
  }
  return out;
}

std::string figure(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x > 0 ? "∞" : "−∞";
  return fmt::format("{:.3g}", x);
}

std::string factor(double x) { return std::isfinite(x) ? fmt::format("{:.2g}", x) : figure(x); }

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds)) return figure(seconds);
  if (seconds < 0.0995) return fmt::format("{:.0f} ms", seconds * 1000);
  return seconds < 99.5 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string span(std::string_view css_class, std::string_view text) {
  return fmt::format("<span class=\"{}\">{}</span>", css_class, escaped(text));
}

}  // namespace assay::verify
