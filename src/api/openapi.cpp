// The OpenAPI document, read off the table of fields.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/api.h"

namespace assay::api {

namespace json = boost::json;

namespace {

struct Operation {
  const char* path;
  const char* method;
  const char* summary;
  unsigned body;  // a Where; 0: none
};

constexpr Operation kOperations[] = {
    {"/health", "get", "Whether the server takes requests", 0},
    {"/v1/models", "get", "The served model by its names", 0},
    {"/v1/models/{id}", "get", "One of them", 0},
    {"/v1/chat/completions", "post", "An answer to a conversation", kChat},
    {"/v1/completions", "post", "How texts go on", kCompletions},
    {"/v1/embeddings", "post", "Vectors of texts", kEmbeddings},
    {"/tokenize", "post", "Text to token ids", kTokenize},
    {"/detokenize", "post", "Token ids to text", kDetokenize},
    {"/apply-template", "post", "The prompt that the chat template makes of messages", kTemplate},
    {"/props", "get", "The server's settings and limits", 0},
    {"/metrics", "get", "Figures in Prometheus' text format", 0},
    {"/openapi.json", "get", "This document", 0},
};

struct Status {
  int code;
  const char* about;
  unsigned for_bodies;  // 1: only operations with a body have it
};

constexpr Status kStatuses[] = {
    {200, "Done", 0},
    {400, "A request that cannot be served; the message names the field, what it needs and what was found", 0},
    {401, "No key, or one that is not known", 0},
    {403, "A Host or Origin that is not allowed", 0},
    {404, "No such path or model", 0},
    {413, "A body beyond the limit", 1},
    {415, "A body that is no application/json", 1},
    {429, "The queue is full; Retry-After tells when to try again", 1},
    {431, "Headers beyond the limit", 0},
    {500, "A fault of the server", 1},
    {503, "The server is ending, or the request's time was over", 0},
};

json::array list_of(std::string_view bars) {
  json::array list;
  while (!bars.empty()) {
    const size_t end = std::min(bars.find('|'), bars.size());
    list.emplace_back(json::string_view(bars.data(), end));
    bars.remove_prefix(std::min(end + 1, bars.size()));
  }
  return list;
}

json::object schema_of(std::string_view path, Where where);

// Members of the object at `path`, "" for the body.
void add_members(json::object& schema, std::string_view path, Where where) {
  json::object properties;
  json::array required;
  schema["additionalProperties"] = false;
  for (const Field& f : fields()) {
    const size_t dot = f.path.rfind('.');
    const std::string_view parent = dot == std::string_view::npos ? std::string_view() : f.path.substr(0, dot);
    const std::string_view name = dot == std::string_view::npos ? f.path : f.path.substr(dot + 1);
    if ((f.where & where) == 0 || parent != path || f.path.ends_with("[]")) continue;
    if (name == "*") {
      schema["additionalProperties"] = schema_of(f.path, where);
      schema["propertyNames"] = json::object{{"pattern", "^[0-9]{1,9}$"}};
      continue;
    }
    properties[json::string_view(name.data(), name.size())] = schema_of(f.path, where);
    if (f.required) required.emplace_back(json::string_view(name.data(), name.size()));
  }
  if (!properties.empty()) schema["properties"] = std::move(properties);
  if (!required.empty()) schema["required"] = std::move(required);
}

json::object typed(const Field& f, unsigned type, Where where) {
  json::object schema;
  const std::string item(std::string(f.path) + "[]");
  const auto sizes = [&](const Field& limits, const char* least, const char* most) {
    if (limits.size_least > 0) schema[least] = limits.size_least;
    if (limits.size_most > 0) schema[most] = limits.size_most;
  };
  const auto all = fields();
  const auto row = std::find_if(all.begin(), all.end(), [&](const Field& x) { return (x.where & where) != 0 && x.path == item; });
  switch (type) {
    case kBoolean: schema["type"] = "boolean"; break;
    case kInteger:
    case kNumber:
      schema["type"] = type == kInteger ? "integer" : "number";
      if (f.least != 0 || f.most != 0) schema["minimum"] = f.least, schema["maximum"] = f.most;
      break;
    case kString:
      schema["type"] = "string";
      if (!f.values.empty()) schema["enum"] = list_of(f.values);
      if (f.types == kString) sizes(f, "minLength", "maxLength");
      else if (row != all.end() && (row->types & kString) != 0) sizes(*row, "minLength", "maxLength");
      break;
    case kArray:
      schema["type"] = "array";
      sizes(f, "minItems", "maxItems");
      if (row != all.end()) schema["items"] = schema_of(item, where);
      break;
    default:
      schema["type"] = "object";
      if (!f.is_free) add_members(schema, f.path, where);
  }
  return schema;
}

json::object schema_of(std::string_view path, Where where) {
  const auto all = fields();
  const auto& f = *std::find_if(all.begin(), all.end(), [&](const Field& x) { return (x.where & where) != 0 && x.path == path; });
  json::object schema;
  if (!f.refused.empty()) {
    json::array only;
    for (const json::value& text : list_of(f.neutral)) only.push_back(json::parse(text.get_string()));
    only.push_back(nullptr);
    schema["enum"] = std::move(only);
    schema["description"] = fmt::format("Refused: {}.", f.refused);
    return schema;
  }
  json::array choices;
  for (const unsigned type : std::array<unsigned, 6>{kBoolean, kInteger, kNumber, kString, kArray, kObject}) {
    if ((f.types & type) != 0) choices.push_back(typed(f, type, where));
  }
  if (!f.required && !f.path.ends_with("[]") && !f.path.ends_with("*")) choices.push_back(json::object{{"type", "null"}});
  if (choices.size() == 1) {
    schema = std::move(choices[0].get_object());
  } else {
    schema["anyOf"] = std::move(choices);
  }
  std::string about(f.about);
  if (!f.standard.empty()) about += fmt::format("{}Left out: {}.", about.empty() ? "" : " ", f.standard);
  if (!about.empty()) schema["description"] = about;
  return schema;
}

json::object operation_json(const Operation& operation) {
  json::object responses;
  for (const Status& status : kStatuses) {
    if (status.for_bodies == 1 && operation.body == 0) continue;
    json::object response{{"description", status.about}};
    if (status.code >= 400) {
      response["content"] = json::object{{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}};
    }
    responses[std::to_string(status.code)] = std::move(response);
  }
  json::object result{{"summary", operation.summary}, {"responses", std::move(responses)}};
  if (operation.body != 0) {
    json::object schema{{"type", "object"}};
    add_members(schema, "", static_cast<Where>(operation.body));
    result["requestBody"] = json::object{{"required", true}, {"content", {{"application/json", {{"schema", std::move(schema)}}}}}};
  }
  if (std::string_view(operation.path).ends_with("{id}")) {
    result["parameters"] = json::array{{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}};
  }
  return result;
}

}  // namespace

std::string openapi_json(std::string_view version) {
  json::object paths;
  for (const Operation& operation : kOperations) paths[operation.path] = json::object{{operation.method, operation_json(operation)}};
  const json::object error{
      {"type", "object"},
      {"properties", {{"error", {{"type", "object"},
                                 {"properties", {{"message", {{"type", "string"}}},
                                                 {"type", {{"type", "string"}}},
                                                 {"param", {{"type", json::array{"string", "null"}}}},
                                                 {"code", {{"type", json::array{"string", "null"}}}}}},
                                 {"required", json::array{"message", "type", "param", "code"}}}}}},
      {"required", json::array{"error"}}};
  const json::object document{{"openapi", "3.1.0"},
                              {"info", {{"title", "assay"}, {"version", json::string_view(version.data(), version.size())}}},
                              {"paths", std::move(paths)},
                              {"components", {{"schemas", {{"Error", error}}},
                                              {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
  return json::serialize(document);
}

}  // namespace assay::api
