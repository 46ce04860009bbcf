// JSON to text: doubles in the shortest form that reads back as the same number, NaN and infinities
// as null.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace assay::cli {

// indented: objects and arrays of them over several lines, arrays of plain values on one.
std::string to_text(const boost::json::value& value, bool indented = false);

}  // namespace assay::cli
