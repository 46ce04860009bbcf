// The form of answers: schemas, grammars and tools become constraints, and answers are read by what they were held to.
#include "api/form.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/api.h"
#include "api/json_text.h"

namespace assay::api {

namespace json = boost::json;

namespace {

constexpr size_t kFormsMax = 32;

// "/tools/0/function/parameters/..." as a path of fields. below: what stands in place of function.parameters.
std::string path_of(std::string_view pointer, std::string_view below) {
  std::string path;
  size_t n_parts = 0;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::string_view part = pointer.substr(0, pointer.find('/'));
    const bool is_number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (n_parts == 2) {
      path += fmt::format(".{}", below);
    } else if (n_parts != 3) {
      path += is_number ? fmt::format("[{}]", part) : fmt::format("{}{}", path.empty() ? "" : ".", part);
    }
    ++n_parts;
    pointer.remove_prefix(part.size());
  }
  return path;
}

// A schema's refusal names the field that it stands in and the pointer below it.
template <class F>
std::shared_ptr<const Constraint> schema_refusals(const std::string& field, std::string_view below_tool, F&& compile) {
  try {
    return compile();
  } catch (const SchemaError& error) {
    const SchemaProblem& first = error.problems.front();
    const std::string more = error.problems.size() > 1 ? fmt::format(" (and {} more)", error.problems.size() - 1) : "";
    const bool is_tool = first.pointer.starts_with("/tools/");
    const std::string_view below = first.pointer.starts_with("/content") ? std::string_view(first.pointer).substr(8)
                                                                         : std::string_view(first.pointer);
    const std::string param = is_tool ? path_of(first.pointer, below_tool) : field;
    throw ApiError(
        400,
        fmt::format("{}: the schema is refused at \"{}\": {}{}", is_tool ? "tools" : field, below, first.message, more),
        param, "invalid_schema");
  } catch (const Error& error) {
    if (error.code != Errc::bad_request) throw;
    throw ApiError(400, fmt::format("{}: {}", field, error.what()), field, "invalid_value");
  }
}

ContentForm content_form(const json::object& body) {
  ContentForm form;
  const auto take = [&](const std::string& field) {
    if (!form.empty())
      throw ApiError(400, fmt::format("{} and {} exclude each other", form.field, field), field, "invalid_value");
    form.field = field;
  };
  if (const json::value* v = member(body, "response_format")) {
    const json::object& f = v->get_object();
    const std::string type(f.at("type").get_string());
    const json::value* schema = member(f, "json_schema");
    if (type == "json_schema") {
      if (schema == nullptr)
        throw ApiError(400, "response_format.json_schema is missing: needs an object", "response_format.json_schema",
                       "missing_required_parameter");
      take("response_format.json_schema.schema");
      form.schema = json::serialize(schema->get_object().at("schema"));
    } else if (schema != nullptr) {
      throw ApiError(400, fmt::format("response_format.json_schema: needs type json_schema, found {}", type),
                     "response_format.json_schema", "invalid_value");
    } else if (type == "json_object") {
      take("response_format");
      form.any_object = true;
    }
  }
  if (const json::value* v = member(body, "json_schema")) {
    take("json_schema");
    form.schema = json::serialize(*v);
  }
  if (const json::value* v = member(body, "grammar")) {
    take("grammar");
    form.grammar = std::string(v->get_string());
  }
  return form;
}

ContentForm text_format(const json::object& body) {
  ContentForm form;
  const json::value* text = member(body, "text");
  const json::value* format = text == nullptr ? nullptr : member(text->get_object(), "format");
  if (format == nullptr) return form;
  const json::object& f = format->get_object();
  const std::string type(f.at("type").get_string());
  for (const char* name : {"name", "schema", "description", "strict"}) {
    const bool is_there = member(f, name) != nullptr;
    const std::string field = fmt::format("text.format.{}", name);
    if (is_there && type != "json_schema") {
      throw ApiError(400, fmt::format("{}: needs type json_schema, found {}", field, type), field, "invalid_value");
    }
    const bool is_needed =
        type == "json_schema" && (name == std::string_view("name") || name == std::string_view("schema"));
    if (is_needed && !is_there) {
      throw ApiError(400, fmt::format("{} is missing: json_schema needs it", field), field,
                     "missing_required_parameter");
    }
  }
  if (type == "json_schema") {
    form.field = "text.format.schema";
    form.schema = json::serialize(f.at("schema"));
  } else if (type == "json_object") {
    form.field = "text.format";
    form.any_object = true;
  }
  return form;
}

// text.format of a response, or a grammar.
ContentForm text_form(const json::object& body) {
  ContentForm form = text_format(body);
  if (const json::value* v = member(body, "grammar")) {
    if (!form.empty())
      throw ApiError(400, fmt::format("{} and grammar exclude each other", form.field), "grammar", "invalid_value");
    form.field = "grammar";
    form.grammar = std::string(v->get_string());
  }
  return form;
}

// function: the object of its name, description and parameters; field: of its name.
Tool tool_of(const json::object& function, const std::string& field) {
  Tool tool;
  tool.name = std::string(function.at("name").get_string());
  const bool fits = std::all_of(tool.name.begin(), tool.name.end(),
                                [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
  if (!fits)
    throw ApiError(400, fmt::format("{}: needs letters, digits, _ and -, found {}", field, json_quoted(tool.name)),
                   field, "invalid_value");
  if (const json::value* parameters = member(function, "parameters")) tool.parameters = json::serialize(*parameters);
  json::object shown = {{"name", function.at("name")}};
  for (const char* name : {"description", "parameters"}) {
    if (const json::value* v = member(function, name)) shown[name] = *v;
  }
  // Templates read these two of every tool.
  if (!shown.contains("description")) shown["description"] = "";
  if (!shown.contains("parameters"))
    shown["parameters"] = json::object{{"type", "object"}, {"properties", json::object()}};
  tool.json = json::serialize(json::object{{"type", "function"}, {"function", std::move(shown)}});
  return tool;
}

// The tools and what is said of calls. Of chat a function has an object of its own; of responses it has none.
void read_tools(const json::object& body, bool has_function, FormAsked& asked) {
  std::set<std::string> names;
  if (const json::value* list = member(body, "tools")) {
    for (const json::value& item : list->get_array()) {
      const json::object& function = has_function ? item.get_object().at("function").get_object() : item.get_object();
      const std::string field = fmt::format("tools[{}].{}name", asked.tools.size(), has_function ? "function." : "");
      Tool tool = tool_of(function, field);
      if (!names.insert(tool.name).second)
        throw ApiError(400, fmt::format("{}: {} is the name of another tool too", field, tool.name), field,
                       "invalid_value");
      asked.tools.push_back(std::move(tool));
    }
  }
  if (const json::value* choice = member(body, "tool_choice")) {
    asked.forbids_calls = choice->is_string() && choice->get_string() == "none";
    asked.must_call = choice->is_object() || choice->get_string() == "required";
    if (const json::object* named = choice->if_object()) {
      asked.only = text_member(has_function ? named->at("function").get_object() : *named, "name");
    }
  }
  asked.only_field = has_function ? "tool_choice.function.name" : "tool_choice.name";
  asked.schema_field = has_function ? "function.parameters" : "parameters";
  if (const json::value* v = member(body, "parallel_tool_calls")) asked.parallel_calls = v->get_bool();
}

}  // namespace

const json::value* member(const json::object& object, const char* name) {
  const json::value* v = object.if_contains(name);
  return v == nullptr || v->is_null() ? nullptr : v;
}

std::string text_member(const json::object& object, const char* name) {
  const json::value* v = object.if_contains(name);
  return v != nullptr && v->is_string() ? std::string(v->get_string()) : std::string();
}

FormAsked chat_form(const json::object& body, bool is_chat) {
  FormAsked asked;
  asked.content = content_form(body);
  if (is_chat) read_tools(body, true, asked);
  return asked;
}

FormAsked response_form(const json::object& body) {
  FormAsked asked;
  asked.content = text_form(body);
  read_tools(body, false, asked);
  return asked;
}

std::shared_ptr<const Constraint> Api::compiled(
    const std::string& key, const std::function<std::shared_ptr<const Constraint>()>& compile) const {
  auto& forms = cache_->forms;
  {
    const std::lock_guard lock(cache_->mutex);
    const auto it = std::find_if(forms.begin(), forms.end(), [&](const auto& f) { return f.first == key; });
    if (it != forms.end()) {
      forms.splice(forms.begin(), forms, it);
      return it->second;
    }
  }
  auto form = compile();
  const std::lock_guard lock(cache_->mutex);
  forms.emplace_front(key, form);
  if (forms.size() > kFormsMax) forms.pop_back();
  return form;
}

std::shared_ptr<const TokenTree> Api::token_tree() const {
  const std::lock_guard lock(cache_->mutex);
  if (!cache_->tokens) cache_->tokens = std::make_shared<const TokenTree>(*model_);
  return cache_->tokens;
}

std::shared_ptr<const engine::TokensWithMore> Api::tokens_with_more() const {
  const std::lock_guard lock(cache_->mutex);
  if (!cache_->with_more) cache_->with_more = engine::tokens_with_more(*model_->tokenizer(), *marks_);
  return cache_->with_more;
}

// Null: an answer of any form.
std::shared_ptr<const Constraint> Api::form_of(const FormAsked& asked, bool is_chat) const {
  const ContentForm& content = asked.content;
  if (asked.must_call && asked.tools.empty())
    throw ApiError(400, "tool_choice: needs tools", "tool_choice", "invalid_value");
  CallRules rules;
  rules.must = asked.must_call;
  rules.parallel = asked.parallel_calls;
  rules.tools = asked.callable();
  if (!asked.only.empty()) {
    std::erase_if(rules.tools, [&](const Tool& t) { return t.name != asked.only; });
    if (rules.tools.empty())
      throw ApiError(400, fmt::format("{}: there is no tool {}", asked.only_field, json_quoted(asked.only)),
                     std::string(asked.only_field), "invalid_value");
  }
  const bool has_channels = is_chat && tool_format_ && tool_format_->has_channels();
  if (rules.tools.empty() && !(has_channels && !content.empty())) {
    if (content.empty()) return nullptr;
    return schema_refusals(content.field, asked.schema_field, [&] {
      if (content.any_object) return compiled("o", [] { return Constraint::any_object(); });
      if (!content.grammar.empty())
        return compiled("g" + content.grammar, [&] { return Constraint::from_grammar(content.grammar); });
      return compiled("s" + content.schema, [&] { return Constraint::from_schema(content.schema); });
    });
  }
  if (!content.grammar.empty()) {
    throw ApiError(
        400,
        has_channels
            ? "grammar: this model answers on channels, which a grammar does not know: response_format is served"
            : "grammar and tools exclude each other",
        "grammar", "invalid_value");
  }
  rules.content_schema = rules.must ? "" : content.any_object ? R"({"type": "object"})" : content.schema;
  std::string key = fmt::format("t{}{}{}\n", rules.must, rules.parallel, rules.content_schema);
  for (const Tool& tool : rules.tools) key += tool.name + tool.parameters + "\n";
  return schema_refusals(content.empty() ? "tools" : content.field, asked.schema_field,
                         [&] { return compiled(key, [&] { return call_constraint(*tool_format_, rules); }); });
}

// One choice's answer: what it is held to, which marks are seen in it, and how it is read.
void Api::hold(Asked& asked, const std::shared_ptr<const Constraint>& form, std::span<const TokenId> prompt,
               GenerateOptions& generate) const {
  if (form) generate.mask = constrain(form, token_tree());
  if (!asked.is_chat()) return;
  const auto& tokenizer = model_->tokenizer();
  const bool has_calls = asked.has_tools || tool_format_->has_channels();
  if (has_calls) {
    asked.reading.format = tool_format_;
    show_call_marks(*tool_format_, *tokenizer, generate);
  }
  if (!marks_) return;
  const bool is_open = opens_reasoning(*tokenizer, *marks_, prompt);
  show_marks(*tokenizer, *marks_, generate);
  if (generate.mask) {
    generate.mask = engine::after_reasoning(tokenizer, *marks_, is_open, options_.n_reasoning_max, generate.mask,
                                            tokens_with_more());
  } else if (options_.n_reasoning_max >= 0) {
    generate.mask = reasoning_budget(tokenizer, *marks_, is_open, options_.n_reasoning_max);
  }
  if (!options_.parts_reasoning) return;
  asked.reading.marks = marks_;
  asked.reading.reasoning_is_open = is_open;
}

std::string Api::habits() const {
  if (!tool_format_) return R"("tool_calls":null,"reasoning":null)";
  const std::string reasoning =
      tool_format_->has_channels() ? R"({"open":"<|channel|>analysis","close":"<|end|>","parted":true})"
      : marks_                     ? fmt::format(R"({{"open":{},"close":{},"parted":{}}})", json_quoted(marks_->open),
                                                 json_quoted(marks_->close), options_.parts_reasoning)
                                   : "null";
  return fmt::format(R"("tool_calls":{{"format":{},"generic":{},"parallel":{},"example":{}}},"reasoning":{})",
                     json_quoted(tool_format_->name()), tool_format_->is_generic(), tool_format_->is_parallel(),
                     json_quoted(tool_format_->example()), reasoning);
}

}  // namespace assay::api
