// Paths and what is answered on them without the model.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "api/json_text.h"
#include "serve/page.h"
#include "serve/server_state.h"

namespace assay {
namespace serve {
namespace {

const char* reason_of(int status) noexcept {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    default: return "Internal Server Error";
  }
}

}  // namespace

int status_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::bad_request: return 400;
    case Errc::unsupported: return 400;
    case Errc::out_of_memory: return 503;
    case Errc::bad_file:
    case Errc::io:
    case Errc::device: return 500;
  }
  return 500;
}

api::ApiError own_fault(std::string_view what, Exchange& e) {
  e.fault = what;
  return api::ApiError(500, "the server failed at this request: its log says why, under the answer's x-request-id");
}

api::ApiError to_api_error(const Error& error, Exchange& e) {
  const int status = status_of(error);
  return status == 500 ? own_fault(error.what(), e) : api::ApiError(status, error.what());
}

Response error_response(const api::ApiError& error) {
  Response response{error.status, api::error_json(error)};
  if (error.status == 500) response.headers.emplace_back("x-should-retry", "false");
  if (error.status == 405) response.headers.emplace_back("Allow", error.allow);
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::string header_list(const std::vector<std::string>& names) {
  constexpr size_t kBytesMax = 1024;
  std::string list;
  for (const std::string& name : names) {
    if (list.size() + name.size() > kBytesMax) return list + (list.empty() ? "..." : ", ...");
    if (!list.empty()) list += ", ";
    for (const char c : name) list += c > 0x20 && c < 0x7f && c != ',' ? c : '?';
  }
  return list;
}

std::string head_text(const Response& response, bool closes, bool is_stream) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", response.status, reason_of(response.status),
                                 response.content_type);
  if (is_stream) {
    head += closes ? "" : "Transfer-Encoding: chunked\r\n";
    head += "Cache-Control: no-cache\r\n";
  } else {
    head += fmt::format("Content-Length: {}\r\n", response.body.size());
  }
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  head += "X-Content-Type-Options: nosniff\r\n";
  if (closes) head += "Connection: close\r\n";
  return head + "\r\n";
}

namespace {

// "/v1/x" and "/x" are the same.
std::string_view plain_path(const HttpRequest& request) {
  const std::string_view path = request.path();
  return path.starts_with("/v1/") ? path.substr(3) : path;
}

}  // namespace

std::optional<api::Where> answers_at(std::string_view path) noexcept {
  if (path == "/chat/completions") return api::kChat;
  if (path == "/completions") return api::kCompletions;
  if (path == "/responses") return api::kResponses;
  return std::nullopt;
}

namespace {

bool is_open(std::string_view path) { return path == "/health" || find_page(path) != nullptr; }

struct Route {
  std::string_view path, methods;
};

constexpr Route kRoutes[] = {
    {"/health", "GET, HEAD"},  {"/models", "GET, HEAD"},       {"/props", "GET, HEAD"},
    {"/metrics", "GET, HEAD"}, {"/openapi.json", "GET, HEAD"}, {"/chat/completions", "POST"},
    {"/completions", "POST"},  {"/responses", "POST"},         {"/embeddings", "POST"},
    {"/tokenize", "POST"},     {"/detokenize", "POST"},        {"/apply-template", "POST"},
    {"/", "GET, HEAD"},        {"/app.js", "GET, HEAD"},       {"/style.css", "GET, HEAD"},
};

// What others have and this server has not, by name.
constexpr std::string_view kNotServed[] = {"/rerank", "/infill", "/slots", "/lora-adapters"};

// "%41" to "A", in a model's name.
std::string decoded(std::string_view text) {
  const auto digit = [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) ? c - '0'
                                                       : (std::tolower(static_cast<unsigned char>(c)) - 'a') + 10;
  };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_code = text[i] == '%' && i + 2 < text.size() &&
                         std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                         std::isxdigit(static_cast<unsigned char>(text[i + 2]));
    result += is_code ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    i += is_code ? 2 : 0;
  }
  return result;
}

void check_route(const HttpRequest& request) {
  const std::string_view path = plain_path(request);
  if (std::find(std::begin(kNotServed), std::end(kNotServed), path) != std::end(kNotServed)) {
    throw api::ApiError(404, fmt::format("{} is not served", request.path()), "", "not_served");
  }
  const std::string_view known = path.starts_with("/models/") ? std::string_view("/models") : path;
  const auto* route =
      std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& r) { return r.path == known; });
  if (route == std::end(kRoutes))
    throw api::ApiError(404, fmt::format("there is no path {}", request.path().substr(0, 200)), "", "unknown_path");
  if (request.method == "OPTIONS") return;
  const std::string methods = fmt::format("{}, ", route->methods);
  if (methods.find(request.method + ",") == std::string::npos) {
    api::ApiError error(405, fmt::format("{} takes {}, found {}", request.path(), route->methods, request.method), "",
                        "method_not_allowed");
    error.allow = route->methods;
    throw error;
  }
  if (request.method != "POST") return;
  const std::string* type = request.header("content-type");
  std::string media(type == nullptr ? "" : type->substr(0, type->find(';')));
  for (char& c : media) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  while (media.ends_with(' ')) media.pop_back();
  if (media != "application/json") throw api::ApiError(415, "Content-Type: needs application/json");
  if (request.header("content-encoding") != nullptr)
    throw api::ApiError(415, "Content-Encoding: a body needs to be plain");
}

}  // namespace
}  // namespace serve

// What is known from the head alone, before a body is read.
void Server::State::check_access(const serve::HttpRequest& request, serve::Exchange& e,
                                 const std::string& local) const {
  access.check_origin(request, local);
  serve::check_route(request);
  if (!serve::is_open(serve::plain_path(request)) && request.method != "OPTIONS") e.client = access.client_of(request);
  if (draining && request.method == "POST")
    throw api::ApiError(503, "the server is ending: ask another one, or again later", "", "draining");
}

int64_t Server::State::retry_after_s() const {
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(scheduler.figures().wait_ms / 1000)));
}

std::vector<serve::Limit> Server::State::limits() const {
  const SchedulerFigures f = scheduler.figures();
  return serve::limits_of(options, f.n_waiting_max, scheduler.context().n_ctx(), f.n_positions);
}

std::string Server::State::props() const {
  const Context& context = scheduler.context();
  const ContextOptions& o = context.options();
  const SamplerOptions& s = options.defaults.sampling;
  return fmt::format(
      R"({{"default_generation_settings":{{"n_ctx":{},"params":{{"temperature":{},"top_k":{},"top_p":{},"min_p":{},"repeat_penalty":{},"n_predict":{}}}}},)"
      R"("total_slots":{},"model_alias":{},"model_path":{},"chat_template":{},"build_info":{},)"
      R"("limits":{},{},)"
      R"("numerics":{{"mode":"{}","activation_bits":{},"cache_k":"{}","cache_v":"{}","kernels":{}}},"system_fingerprint":"{}"}})",
      context.n_ctx(), s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty, options.defaults.n_predict,
      o.n_sequences, api::json_quoted(api.options().names.front()), api::json_quoted(api.options().names.front()),
      api::json_quoted(api.template_source()), api::json_quoted("assay " + options.version),
      boost::json::serialize(serve::values_of(limits())), api.habits(), name(o.numerics), o.activation_bits,
      name(o.cache_k), name(o.cache_v), api::json_quoted(context.kernels()), api.options().fingerprint);
}

// Everything but what takes a body.
std::optional<serve::Response> Server::State::quick(const serve::HttpRequest& request) {
  const std::string_view path = serve::plain_path(request);
  if (request.method == "OPTIONS") {
    serve::Response response{204, "", "text/plain"};
    if (!access.cors_origin(request).empty()) {
      response.headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                          {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id"}};
    }
    return response;
  }
  if (path == "/health") {
    if (!draining) return serve::Response{200, R"({"status":"ok"})"};
    return serve::Response{503, R"({"status":"draining"})", "application/json", {{"Retry-After", "1"}}};
  }
  if (const serve::PageFile* file = serve::find_page(path)) {
    serve::Response response{200, std::string(file->text), std::string(file->content_type)};
    response.headers = {{"Content-Security-Policy", std::string(serve::kPagePolicy)},
                        {"Referrer-Policy", "no-referrer"},
                        {"Cache-Control", "no-cache"}};
    return response;
  }
  if (path == "/models") return serve::Response{200, api.models()};
  if (path.starts_with("/models/")) return serve::Response{200, api.model(serve::decoded(path.substr(8)))};
  if (path == "/props") return serve::Response{200, props()};
  if (path == "/metrics")
    return serve::Response{200, metrics.text(scheduler.figures(), static_cast<int64_t>(connections.size())),
                           "text/plain; version=0.0.4"};
  if (path == "/openapi.json")
    return serve::Response{200,
                           api::openapi_json(options.version, options.limits, serve::values_and_flags_of(limits()))};
  return std::nullopt;
}

}  // namespace assay
