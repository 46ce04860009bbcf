// What a body says of the form of answers, whichever API's body it is.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "assay/tools.h"

namespace assay::api {

// What the text of an answer is held to.
struct ContentForm {
  std::string field;    // that asks for it; empty: none does
  std::string schema;   // JSON text
  std::string grammar;  // GBNF
  bool any_object = false;
  bool empty() const { return field.empty(); }
};

struct FormAsked {
  ContentForm content;
  std::vector<Tool> tools;
  bool forbids_calls = false;     // tool_choice is none
  bool must_call = false;         // it is required, or names a function
  bool parallel_calls = true;     // several in one answer
  std::string only;               // the function that is to be called; empty: any
  std::string_view only_field;    // that says so
  std::string_view schema_field;  // of a tool's parameters, below tools[i]

  std::vector<Tool> callable() const { return forbids_calls ? std::vector<Tool>() : tools; }
};

// Of a body of chat completions or completions, and of one of responses. ApiError(400): a function's name twice, or of
// other characters; two fields for one thing.
FormAsked chat_form(const boost::json::object& body, bool is_chat);
FormAsked response_form(const boost::json::object& body);

// A member that is there and not null; null: none.
const boost::json::value* member(const boost::json::object& object, const char* name);
std::string text_member(const boost::json::object& object, const char* name);  // empty where there is none

}  // namespace assay::api
