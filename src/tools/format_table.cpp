// The formats that are known by name, and writing calls in one.
#include <algorithm>
#include <boost/json.hpp>

#include "constraint/json_parts.h"
#include "tools/arguments.h"
#include "tools/format.h"

namespace assay::tools {
namespace {

using Kind = Part::Kind;

// What a probe must have found: the beginning of a call, and what stands between name and arguments.
struct Row {
  std::string_view name, opening, middle;
};
constexpr Row kRows[] = {
    {"llama 3", "{\"name\": \"", "\", \"parameters\": "},
    {"hermes", "<tool_call>", "\", \"arguments\": "},
    {"mistral nemo", "[TOOL_CALLS]", "\", \"arguments\": "},
    {"mistral small 3", "[TOOL_CALLS]", "[CALL_ID]"},
    {"mistral args", "[TOOL_CALLS]", "[ARGS]"},
    {"deepseek r1", "<｜tool▁calls▁begin｜>", "\n```json\n"},
    {"deepseek v3.1", "<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"},
    {"command-r", "<|START_ACTION|>", "\", \"parameters\": "},
    {"minimax m1", "<tool_calls>", "\", \"arguments\": "},
    {"apriel", "<tool_calls>", "\", \"arguments\": "},
    {"nemotron", "<TOOLCALL>", "\", \"arguments\": "},
    {"gigachat 3", "<|function_call|>", "\", \"arguments\": "},
    {"functionary 3.1", "<function=", ">"},
    {"solar open", "<|tool_calls|>", "<|tool_call:args|>"},
    {"apertus", "<|tools_prefix|>", "\": "},
};
// Of those that write arguments one after the other: the beginning of a call, what stands before a name of an argument,
// and around its text.
struct NamedRow {
  std::string_view name, opening, open, quote;
};
constexpr NamedRow kNamedRows[] = {
    {"qwen3 coder", "<tool_call>", "<parameter=", ""},
    {"seed oss", "<seed:tool_call>", "<parameter=", ""},
    {"glm 4", "<tool_call>", "<arg_key>", ""},
    {"hunyuan 3", "<tool_calls:opensource>", "<arg_key:opensource>", ""},
    {"deepseek v4", "<｜DSML｜tool_calls>", "<｜DSML｜parameter name=\"", ""},
    {"gemma 4", "<|tool_call>", "", "<|\"|>"},
    {"functiongemma", "<start_function_call>", "", "<escape>"},
};

std::string_view middle_of(const Format& f) {
  for (size_t i = 0; i + 1 < f.call.size(); ++i) {
    if (f.call[i].kind == Kind::name) return f.call[i + 1].text;
  }
  return {};
}

void set_json_call(Format& f, std::string before, std::string between, std::string after) {
  f.before = std::move(before);
  f.between = std::move(between);
  f.after = std::move(after);
  f.call = {{Kind::name}, {Kind::literal, "\", \"arguments\": "}, {Kind::arguments}};
  f.parallel = true;
}

}  // namespace

bool confirm(Format& f) {
  if (f.form == Format::Form::named) {
    for (const NamedRow& row : kNamedRows) {
      if (f.opening() != row.opening || f.arguments.open != row.open || f.arguments.quote != row.quote) continue;
      f.name = row.name;
      f.known = true;
      return true;
    }
    return false;
  }
  for (const Row& row : kRows) {
    const std::string_view middle = middle_of(f);
    const bool is_same = row.name == "mistral small 3" ? middle.starts_with(row.middle) : middle == row.middle;
    if (f.opening() != row.opening || !is_same) continue;
    if (row.name == "minimax m1" && !f.before.starts_with("<tool_calls>\n")) continue;
    f.name = row.name;
    f.known = true;
    return true;
  }
  return false;
}

bool find_by_mark(std::string_view source, Format& f) {
  const auto has = [&](std::string_view mark) { return source.find(mark) != std::string_view::npos; };
  if (has("<|channel|>") && has("commentary") && has("<|message|>")) {
    f.name = "harmony";
    f.form = Format::Form::harmony;
    f.known = true;
    return true;
  }
  if (has("<|/tool|>")) {  // Phi-4-mini: the list of tools stands in a member of the system message
    f.name = "phi 4";
    f.known = f.tools_in_system = true;
    f.lists_tools = f.writes_calls = false;
    set_json_call(f, "<|tool_call|>[{\"name\": \"", "}, {\"name\": \"", "}]<|/tool_call|>");
    f.n_opening = std::string_view("<|tool_call|>").size();
    return true;
  }
  if (has("respond only with <|tool_call|> followed by a JSON list")) {
    f.name = "granite 3";
    f.known = true;
    f.writes_calls = false;
    set_json_call(f, "<|tool_call|>[{\"name\": \"", "}, {\"name\": \"", "}]");
    f.n_opening = std::string_view("<|tool_call|>").size();
    return true;
  }
  return false;
}

void make_generic(Format& f) {
  f.name = "generic";
  f.generic = true;
  f.known = f.lists_tools = f.writes_calls = f.ids_of_nine = f.arguments_as_text = false;
  f.form = Format::Form::json;
  f.anchored = false;
  f.blanks.clear();
  set_json_call(f, "<tool_call>\n{\"name\": \"", "}\n</tool_call>\n<tool_call>\n{\"name\": \"", "}\n</tool_call>");
  f.n_opening = std::string_view("<tool_call>").size();
}

std::string json_dumps_of(std::string_view text) {
  boost::json::error_code failure;
  const boost::json::value v = boost::json::parse(boost::json::string_view(text.data(), text.size()), failure);
  return failure ? std::string(text) : constraint::json_dumps(v);
}

std::string write_calls(const Format& f, std::span<const ToolCall> calls) {
  std::string text;
  if (calls.empty()) return text;
  if (f.form == Format::Form::harmony) {
    const ToolCall& c = calls.front();
    return "<|channel|>commentary to=functions." + c.name + " <|constrain|>json<|message|>" +
           json_dumps_of(c.arguments);
  }
  text = f.before;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) text += f.between;
    for (const Part& part : f.call) {
      switch (part.kind) {
        case Kind::literal: text += part.text; break;
        case Kind::name: text += calls[i].name; break;
        case Kind::arguments:
          text += f.form == Format::Form::named ? write_arguments(f.arguments, calls[i].arguments)
                                                : json_dumps_of(calls[i].arguments);
          break;
        case Kind::id: text += calls[i].id; break;
        case Kind::index: text += std::to_string(i); break;
      }
    }
  }
  return text + f.after;
}

}  // namespace assay::tools
