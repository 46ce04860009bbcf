// The escaping behind shown.h.
#include "base/shown.h"

#include <cstddef>

namespace assay::base {

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  out += text.size() > kLongest ? "'..." : "'";
  return out;
}

}  // namespace assay::base
