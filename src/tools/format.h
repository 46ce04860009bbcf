// How a template writes calls: literal texts around names, arguments and ids.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/tools.h"

namespace assay::tools {

struct Part {
  enum class Kind { literal, name, arguments, id, index };
  Kind kind = Kind::literal;
  std::string text = {};  // of a literal
};

// How arguments are written one after the other: begin, then for each open NAME middle VALUE close behind, with
// `between` two of them, then end.
struct ArgumentMarks {
  std::string begin, open, middle, close, behind, between, end;
  std::string text_middle;  // in place of middle before a text; mostly the same
  // Empty: texts stand as they are, all else is JSON. Else texts stand between two of these, names have no quotes and
  // there are no blanks, inside of values too.
  std::string quote;
};

struct Format {
  // json: arguments as one JSON object. harmony: gpt-oss' channels. named: arguments as `arguments` says.
  enum class Form { json, harmony, named };

  std::string name = "generic";
  Form form = Form::json;
  bool known = false;            // a row of the table
  bool generic = false;          // tools and calls are written by us, into messages that the template only has as text
  bool lists_tools = true;       // the template writes the tools' list
  bool writes_calls = true;      // the template writes earlier calls and what they came to; else they become text
  bool tools_in_system = false;  // as text in a member `tools` of the system message

  // An answer with calls is: before, call, (between, call)*, after. `before` begins with no blank.
  std::string blanks, before, between, after;
  std::vector<Part> call;  // from the first slot to the last
  ArgumentMarks arguments;
  bool parallel = false;
  size_t n_opening = 0;   // so many bytes of `before` tell a call from text
  bool anchored = false;  // only at the beginning of an answer

  // What the template wants of earlier calls.
  bool arguments_as_text = false, null_content = false;
  bool ids_of_nine = false;   // letters and digits
  bool system_role = true;    // a first message of the system is taken
  bool merges_users = false;  // roles must alternate: messages of one role become one

  std::vector<std::string> marks;  // the vocabulary's control tokens that are part of it, longest first

  std::string_view opening() const { return std::string_view(before).substr(0, n_opening); }
};

// JSON as Python's json.dumps writes it, which is what models were trained on.
std::string json_dumps_of(std::string_view json);

// Probes the template; a generic format where nothing is found.
Format find_format(const ChatTemplate& chat_template, std::string_view source, const std::string& bos,
                   const std::string& eos, std::span<const std::string> ends);
// Names what is known; returns false for a format that is in no row.
bool confirm(Format& format);
// Formats that are told by a mark in the template's text, since the template does not write calls.
bool find_by_mark(std::string_view source, Format& format);
void make_generic(Format& format);

// As the model is to write them.
std::string write_calls(const Format& format, std::span<const ToolCall> calls);

}  // namespace assay::tools
