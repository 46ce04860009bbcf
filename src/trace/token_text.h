// A token as messages name it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace assay::trace {

// 338 " hills", or 338 alone where no text is known.
inline std::string token_with_text(int32_t id, const std::string& text) {
  return text.empty() ? fmt::format("{}", id) : fmt::format("{} {}", id, text);
}

}  // namespace assay::trace
