// Letters of ASCII alone, whatever the locale: names of headers, hosts, files' types.
#pragma once

#include <string>
#include <string_view>

namespace assay::base {

inline std::string lower(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lowered;
}

}  // namespace assay::base
