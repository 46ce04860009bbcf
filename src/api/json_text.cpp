// See json_text.h.
#include "api/json_text.h"

#include "engine/metadata_json.h"

namespace assay::api {

std::string json_quoted(std::string_view text) { return engine::json_string(text); }

}  // namespace assay::api
