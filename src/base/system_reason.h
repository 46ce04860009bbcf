// What the system says of an errno value: "No such file or directory".
#pragma once

#include <string>
#include <system_error>

namespace assay::base {

inline std::string system_reason(int error) { return std::generic_category().message(error); }

}  // namespace assay::base
