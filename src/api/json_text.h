// JSON text from values. Numbers are written shortest first and read back as the same.
#pragma once

#include <string>
#include <string_view>

namespace assay::api {

// A string in quotes, escaped; bytes that are no UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace assay::api
