// Text at the edge: what comes from users must be UTF-8, and what comes from files must not steer a terminal.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace assay {

// The offset of the first byte that is no part of well-formed UTF-8 (no overlong forms, no
// surrogates, nothing above U+10FFFF).
std::optional<size_t> find_invalid_utf8(std::string_view text) noexcept;

// Error(bad_request) that names the text (`what`, e.g. "the prompt"), the byte and its offset.
void require_utf8(std::string_view text, std::string_view what);

// One line that no terminal takes for a command: control characters (C0, DEL, C1) as \n, \t, \x1b, \x9b, bytes that are
// no UTF-8 as <0xNN>; all else as it is.
std::string printable(std::string_view text);
// The same of several lines: line breaks and tabs stay.
std::string printable_lines(std::string_view text);
// In double quotes, with \" and \\ inside: how a token is shown.
std::string quoted_text(std::string_view text);
// JSON whose strings have no control character left: DEL and C1 as \u007f, \u009b. (C0 cannot stand in valid JSON's
// strings.)
std::string json_without_controls(std::string json);

}  // namespace assay
