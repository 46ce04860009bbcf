// JSON Schemas of the server's answers, for the OpenAPI document.
#pragma once

#include <boost/json.hpp>

namespace assay::api {

boost::json::object answer_shapes();  // by name

}  // namespace assay::api
