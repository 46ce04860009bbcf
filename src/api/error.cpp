// See error.h.
#include "api/error.h"

#include <fmt/format.h>

#include "api/json_text.h"

namespace assay::api {

const char* error_type(int status) noexcept {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string error_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? std::string("null") : json_quoted(text); };
  return fmt::format(R"({{"error":{{"message":{},"type":"{}","param":{},"code":{}}}}})", json_quoted(error.what()),
                     error_type(error.status), or_null(error.param), or_null(error.code));
}

}  // namespace assay::api
