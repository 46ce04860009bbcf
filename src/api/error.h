// What a client is told when its request is not served: an HTTP status and OpenAI's error object.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace assay::api {

struct ApiError : std::runtime_error {
  ApiError(int http_status, const std::string& message, std::string parameter = {}, std::string error_code = {})
      : std::runtime_error(message), status(http_status), param(std::move(parameter)), code(std::move(error_code)) {}
  int status;
  std::string param;  // the field, with its path; empty: none
  std::string code;   // for programs; empty: null
  std::string allow;  // of 405: the methods that there are
};

// {"error": {"message", "type", "param", "code"}}
std::string error_json(const ApiError& error);
// OpenAI's class of a status: "invalid_request_error", "rate_limit_error", "server_error", ...
const char* error_type(int status) noexcept;

}  // namespace assay::api
