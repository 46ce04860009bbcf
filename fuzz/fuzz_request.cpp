// Any bytes as an HTTP request whose body, if it is one, is JSON for each of the paths: its fields, and what it says of
// messages, tools and the form of answers, are read or refused, never anything else. The bytes in one piece and in
// small ones are the same request.
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "api/error.h"
#include "api/fields.h"
#include "api/form.h"
#include "api/json_reader.h"
#include "api/responses.h"
#include "serve/http_request.h"
#include "target.h"

namespace {

using assay::api::ApiError;
using assay::serve::HttpError;
using assay::serve::RequestReader;

// What came of it, as text.
std::string outcome(std::string_view bytes, size_t step, std::string* body) {
  RequestReader reader;
  try {
    while (!bytes.empty() && !reader.done()) {
      const size_t n = reader.feed(bytes.substr(0, step));
      if (n == 0) std::abort();  // it would wait for ever
      bytes.remove_prefix(n);
    }
  } catch (const HttpError& error) {
    return std::to_string(error.status);
  }
  if (!reader.done()) return "more";
  *body = reader.request().body;
  return "done " + reader.request().method + reader.request().target + *body;
}

// What is said again of a request.
void require_json(const std::string& text) {
  try {
    boost::json::parse(text);
  } catch (const std::exception&) {
    std::abort();
  }
}

void check_body(std::string_view text) {
  using namespace assay::api;
  for (const Where where : {kChat, kCompletions, kTokenize, kDetokenize, kTemplate, kEmbeddings, kResponses}) {
    for (const bool lenient : {false, true}) {
      try {
        boost::json::value body = read_json(text);
        std::vector<std::string> ignored;
        if (!body.is_object()) return;
        check_fields(body.get_object(), where, lenient, ignored);
        Draft draft = read_draft(body.get_object(), where, {});
        if (where == kChat || where == kCompletions) chat_form(body.get_object(), where == kChat);
        if (where != kResponses) continue;
        read_included(body.get_object(), draft);
        response_form(body.get_object());
        response_messages(body.get_object());
        require_json("{" + told_of_response(body.get_object(), draft) + "}");
      } catch (const ApiError&) {
      }
    }
  }
}

}  // namespace

ASSAY_FUZZ_TARGET(request) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string body, same;
  if (outcome(bytes, std::string_view::npos, &body) != outcome(bytes, 3, &same)) std::abort();
  check_body(bytes.starts_with("{") ? bytes : std::string_view(body));
  return 0;
}
