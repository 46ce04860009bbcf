// The escaping behind printable.h.
#include "files/printable.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace assay::files {

std::string printable(std::string_view text) {
  std::string out;
  const std::string valid = base::repaired_utf8(text);
  for (size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid[i]);
    const bool is_c1 =
        byte == 0xc2 && i + 1 < valid.size() && static_cast<unsigned char>(valid[i + 1]) < 0xa0;  // U+0080 to U+009F
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (is_c1) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(valid[++i]));
    } else {
      out += valid[i];
    }
  }
  return out;
}

}  // namespace assay::files
