// See json_reader.h.
#include "api/json_reader.h"

#include <fmt/format.h>

#include "api/error.h"
#include "assay/error.h"
#include "assay/utf8.h"

namespace assay::api {

boost::json::value read_json(std::string_view text, const JsonLimits& limits) {
  if (text.empty()) throw ApiError(400, "the body is empty: needs a JSON object");
  const bool has_mark = text.starts_with("\xEF\xBB\xBF");
  if (const auto at = has_mark ? std::nullopt : find_invalid_utf8(text)) {
    throw ApiError(400,
                   fmt::format("the body is no UTF-8: byte {} (0x{:02x})", *at, static_cast<unsigned char>(text[*at])));
  }
  try {
    return json_text::read(text, "the body", limits);
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
}

}  // namespace assay::api
