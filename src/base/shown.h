// Text from a file or a user, made fit for an error message.
#pragma once

#include <string>
#include <string_view>

namespace assay::base {

// In single quotes; control characters and bytes beyond ASCII as \xNN, cut after 80 characters with "..." behind the
// quote.
std::string shown(std::string_view text);

}  // namespace assay::base
