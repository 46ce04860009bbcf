// The clock as text, in English whatever the locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace assay::chat {

// strftime of local time; unix: seconds since 1970, nullopt: now. Error(unsupported) for a
// directive that is not known.
std::string format_time(const std::string& format, std::optional<int64_t> unix);

}  // namespace assay::chat
