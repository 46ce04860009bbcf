// The body of a request as JSON, strictly: what the standard leaves to the reader is refused here, so that two readers
// can never see two things in one body.
#pragma once

#include <boost/json.hpp>
#include <string_view>

#include "json/reader.h"

namespace assay::api {

using JsonLimits = json_text::Limits;

// ApiError(400) for what is no JSON, invalid UTF-8, a byte order mark, a lone surrogate, two members of one name, a
// number that no double holds or an integer of more than 64 bits, and for what goes beyond a limit. Numbers are
// correctly rounded.
boost::json::value read_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace assay::api
