// A JSON value in an error message.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace assay::json_text {

// As JSON, a number in its shortest form; at most 60 bytes: of a longer text its beginning, cut between characters, with
// "..." behind it.
std::string shown(const boost::json::value& value);

}  // namespace assay::json_text
