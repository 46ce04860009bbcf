// The JSON of a dump's header (docs/dump-format.md), to and from.
#pragma once

#include <string>
#include <string_view>

#include "trace/dump.h"

namespace assay::trace {

std::string header_to_json(const DumpHeader& header);

// Keys it does not know are passed over. Error(bad_file) for text that is no JSON object, keys that are missing, and
// values of another kind or out of range.
DumpHeader parse_header(std::string_view text);

}  // namespace assay::trace
