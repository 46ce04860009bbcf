// The OpenAPI document, read off the table of fields.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/answer_shapes.h"
#include "api/api.h"

namespace assay::api {

namespace json = boost::json;

namespace {

struct Operation {
  const char* path;
  const char* method;
  const char* summary;
  unsigned body;            // a Where; 0: none
  const char* shape;        // of components/schemas; or a content type
  bool is_open = false;     // needs no key
  bool has_stream = false;  // server-sent events where stream is true
};

constexpr Operation kOperations[] = {
    {"/health", "get", "Whether the server takes requests", 0, "Health", true},
    {"/v1/models", "get", "The served model by its names", 0, "ModelList"},
    {"/v1/models/{id}", "get", "One of them", 0, "Model"},
    {"/v1/chat/completions", "post", "An answer to a conversation", kChat, "ChatCompletion", false, true},
    {"/v1/completions", "post", "How texts go on", kCompletions, "Completion", false, true},
    {"/v1/responses", "post", "An answer to a conversation as items; nothing of it is stored", kResponses, "Response",
     false, true},
    {"/v1/embeddings", "post", "Vectors of texts", kEmbeddings, "Embeddings"},
    {"/tokenize", "post", "Text to token ids", kTokenize, "Tokens"},
    {"/detokenize", "post", "Token ids to text", kDetokenize, "Text"},
    {"/apply-template", "post", "The prompt that the chat template makes of messages", kTemplate, "Prompt"},
    {"/props", "get", "The server's settings and limits", 0, "Props"},
    {"/metrics", "get", "Figures in Prometheus' text format", 0, "text/plain"},
    {"/openapi.json", "get", "This document", 0, "Document"},
    {"/", "get", "A page to talk to the model", 0, "text/html", true},
    {"/app.js", "get", "Its script", 0, "text/javascript", true},
    {"/style.css", "get", "Its style", 0, "text/css", true},
};

enum class Has { all, with_body, with_key, with_model, with_answer };

struct Status {
  int code;
  const char* about;
  Has has;
};

constexpr Status kStatuses[] = {
    {400,
     "A request that cannot be served; the message names the field, what it needs and what was found. Or bytes that "
     "are no HTTP",
     Has::all},
    {401, "No key, or one that is not known", Has::with_key},
    {403, "A Host or Origin that is not allowed", Has::all},
    {404, "No such path or model", Has::with_model},
    {405, "Another method; the header Allow tells which there are", Has::all},
    {413, "A body beyond the limit of --max-body", Has::all},
    {414, "A target beyond the limit", Has::all},
    {415, "A body that is no application/json, or is compressed", Has::with_body},
    {429, "The queue is full; the header Retry-After tells when to try again", Has::with_answer},
    {431, "Headers beyond the limit", Has::all},
    {500, "A fault of the server; the header x-should-retry is false", Has::with_body},
    {503,
     "The server is ending, has no memory for the request, or the request's time was over; the header Retry-After "
     "tells when to try again",
     Has::with_body},
};

bool has_status(const Operation& o, const Status& s) {
  switch (s.has) {
    case Has::all: return true;
    case Has::with_body: return o.body != 0;
    case Has::with_key: return !o.is_open;
    case Has::with_model: return o.body != 0 || std::string_view(o.path).ends_with("{id}");
    case Has::with_answer: return (o.body & (kChat | kCompletions | kResponses | kEmbeddings)) != 0;
  }
  return true;
}

json::array list_of(std::string_view bars) {
  json::array list;
  while (!bars.empty()) {
    const size_t end = std::min(bars.find('|'), bars.size());
    list.emplace_back(json::string_view(bars.data(), end));
    bars.remove_prefix(std::min(end + 1, bars.size()));
  }
  return list;
}

json::object schema_of(std::string_view path, Where where, const RequestLimits& limits);

// Members of the object at `path`, "" for the body.
void add_members(json::object& schema, std::string_view path, Where where, const RequestLimits& limits) {
  json::object properties;
  json::array required;
  schema["additionalProperties"] = false;
  for (const Field& f : fields()) {
    const size_t dot = f.path.rfind('.');
    const std::string_view parent = dot == std::string_view::npos ? std::string_view() : f.path.substr(0, dot);
    const std::string_view name = dot == std::string_view::npos ? f.path : f.path.substr(dot + 1);
    if ((f.where & where) == 0 || parent != path || f.path.ends_with("[]")) continue;
    if (name == "*") {
      schema["additionalProperties"] = schema_of(f.path, where, limits);
      schema["propertyNames"] = json::object{{"pattern", "^[0-9]{1,9}$"}};
      continue;
    }
    properties[json::string_view(name.data(), name.size())] = schema_of(f.path, where, limits);
    if (f.required) required.emplace_back(json::string_view(name.data(), name.size()));
  }
  if (!properties.empty()) schema["properties"] = std::move(properties);
  if (!required.empty()) schema["required"] = std::move(required);
}

json::object typed(const Field& f, unsigned type, Where where, const RequestLimits& limits) {
  json::object schema;
  const std::string item(std::string(f.path) + "[]");
  const auto sizes = [&](const Field& limited, const char* least, const char* most) {
    if (limited.size_least > 0) schema[least] = limited.size_least;
    if (const int64_t n = size_most_of(limited, limits); n > 0) schema[most] = n;
  };
  const auto all = fields();
  const auto row =
      std::find_if(all.begin(), all.end(), [&](const Field& x) { return (x.where & where) != 0 && x.path == item; });
  switch (type) {
    case kBoolean: schema["type"] = "boolean"; break;
    case kInteger:
    case kNumber:
      schema["type"] = type == kInteger ? "integer" : "number";
      if (f.least != 0 || f.most != 0) schema["minimum"] = f.least, schema["maximum"] = most_of(f, limits);
      break;
    case kString:
      schema["type"] = "string";
      if (!f.values.empty()) schema["enum"] = list_of(f.values);
      if (f.types == kString)
        sizes(f, "minLength", "maxLength");
      else if (row != all.end() && (row->types & kString) != 0)
        sizes(*row, "minLength", "maxLength");
      break;
    case kArray:
      schema["type"] = "array";
      sizes(f, "minItems", "maxItems");
      if (row != all.end()) schema["items"] = schema_of(item, where, limits);
      break;
    default:
      schema["type"] = "object";
      if (!f.is_free) add_members(schema, f.path, where, limits);
  }
  return schema;
}

json::object schema_of(std::string_view path, Where where, const RequestLimits& limits) {
  const auto all = fields();
  const auto& f =
      *std::find_if(all.begin(), all.end(), [&](const Field& x) { return (x.where & where) != 0 && x.path == path; });
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
    if ((f.types & type) != 0) choices.push_back(typed(f, type, where, limits));
  }
  if (!f.required && !f.path.ends_with("[]") && !f.path.ends_with("*"))
    choices.push_back(json::object{{"type", "null"}});
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

json::object one(std::string_view name, json::value value) {
  json::object object;
  object[json::string_view(name.data(), name.size())] = std::move(value);
  return object;
}

json::object reference(std::string_view shape) {
  return one("$ref", json::value(fmt::format("#/components/schemas/{}", shape)));
}

json::object of_type(std::string_view type) {
  return one("type", json::value(json::string_view(type.data(), type.size())));
}

json::object header(const char* about, const char* type) {
  json::object object = one("description", json::value(about));
  object["schema"] = of_type(type);
  return object;
}

json::object done_json(const Operation& operation) {
  const std::string_view shape = operation.shape;
  const bool is_json = shape.find('/') == std::string_view::npos;
  json::object content;
  if (is_json) {
    content["application/json"] = one("schema", reference(shape));
  } else {
    content[json::string_view(shape.data(), shape.size())] = one("schema", of_type("string"));
  }
  if (operation.has_stream) {
    json::object stream = of_type("string");
    stream["description"] = operation.body == kResponses
                                ? "With stream: events of ResponseEvent, each with its type in its line event; the "
                                  "last one has the whole response."
                                : "With stream: a line data for each object of the shape with Chunk in its name, then "
                                  "data: [DONE]. A failure is an object of the shape Error.";
    content["text/event-stream"] = one("schema", std::move(stream));
  }
  json::object done = one("description", "Done");
  done["content"] = std::move(content);
  done["headers"] = one("x-request-id", header("The request's own, or a new one; stands in the log", "string"));
  if (operation.body != 0)
    done["headers"].get_object()["x-ignored-params"] = header("With --lenient: fields that are not known", "string");
  return done;
}

json::object error_json_of(const Status& status) {
  json::object response = one("description", json::value(status.about));
  response["content"] = one("application/json", one("schema", reference("Error")));
  if (status.code == 405) response["headers"] = one("Allow", header("Methods", "string"));
  if (status.code == 429 || status.code == 503) response["headers"] = one("Retry-After", header("Seconds", "integer"));
  if (status.code == 500) response["headers"] = one("x-should-retry", header("false", "string"));
  if (status.code == 401) response["headers"] = one("WWW-Authenticate", header("Bearer", "string"));
  return response;
}

json::object operation_json(const Operation& operation, const RequestLimits& limits) {
  json::object responses{{"200", done_json(operation)}};
  for (const Status& status : kStatuses) {
    if (has_status(operation, status)) responses[std::to_string(status.code)] = error_json_of(status);
  }
  if (std::string_view(operation.path) == "/health") {
    json::object ending = one("description", "The server is ending");
    ending["content"] = one("application/json", one("schema", reference("Health")));
    responses["503"] = std::move(ending);
  }
  json::object result{{"summary", operation.summary}, {"responses", std::move(responses)}};
  if (operation.is_open) result["security"] = json::array{json::object()};
  if (operation.body != 0) {
    json::object schema{{"type", "object"}};
    add_members(schema, "", static_cast<Where>(operation.body), limits);
    result["requestBody"] =
        json::object{{"required", true}, {"content", {{"application/json", {{"schema", std::move(schema)}}}}}};
  }
  if (std::string_view(operation.path).ends_with("{id}")) {
    result["parameters"] =
        json::array{{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}};
  }
  return result;
}

}  // namespace

std::string openapi_json(std::string_view version, const RequestLimits& limits, json::object told_limits) {
  json::object paths;
  for (const Operation& operation : kOperations)
    paths[operation.path] = json::object{{operation.method, operation_json(operation, limits)}};
  json::object document = json::parse(R"({"openapi": "3.1.0", "info": {"title": "assay"}, "servers": [{"url": "/"}],
      "security": [{}, {"bearer": []}, {"header": []}],
      "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}, "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"}}}})")
                              .get_object();
  json::object& info = document["info"].get_object();
  info["version"] = json::string_view(version.data(), version.size());
  info["description"] =
      "Every path is there with and without /v1, every GET also as HEAD. A field that does not stand here is refused. "
      "A key is needed where the server has any.";
  info["x-limits"] = std::move(told_limits);
  document["paths"] = std::move(paths);
  document["components"].get_object()["schemas"] = answer_shapes();
  return json::serialize(document);
}

}  // namespace assay::api
