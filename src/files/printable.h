// Text from a file, made fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace assay::files {

// Control characters as \xNN, bytes that are no UTF-8 replaced; everything else as it is.
std::string printable(std::string_view text);

}  // namespace assay::files
