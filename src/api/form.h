// What a body says of the form of answers.
#pragma once

#include <boost/json.hpp>
#include <vector>

#include "assay/tools.h"

namespace assay::api {

std::vector<Tool> tools_of(const boost::json::object& body);  // ApiError(400) for a name twice, or of other characters
bool forbids_calls(const boost::json::object& body);          // tool_choice is none

}  // namespace assay::api
