// Text from users must be UTF-8: this checks it at the edge.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace assay {

// The offset of the first byte that is no part of well-formed UTF-8 (no overlong forms, no
// surrogates, nothing above U+10FFFF).
std::optional<size_t> find_invalid_utf8(std::string_view text) noexcept;

// Error(bad_request) that names the text (`what`, e.g. "the prompt"), the byte and its offset.
void require_utf8(std::string_view text, std::string_view what);

}  // namespace assay
