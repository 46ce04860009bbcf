// Requests: bodies to prompts and options.
#include "api/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <random>

#include "api/error.h"
#include "api/form.h"
#include "api/json_reader.h"
#include "api/json_text.h"
#include "api/responses.h"
#include "assay/utf8.h"

namespace assay::api {

namespace json = boost::json;

namespace {

constexpr int64_t kPromptsMax = 64;

std::string_view view(const json::string& s) { return {s.data(), s.size()}; }

uint64_t random_bits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::vector<TokenId> ids_of(const json::array& list, std::string_view name, int64_t vocab_size) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const bool is_number = list[i].is_int64() || list[i].is_uint64() || list[i].is_double();
    const int64_t id = is_number ? integer_of(list[i]) : -1;
    if (id < 0 || id >= vocab_size) {
      const std::string field = fmt::format("{}[{}]", name, i);
      throw ApiError(400, fmt::format("{}: needs a token id from 0 to {}", field, vocab_size - 1), field,
                     "invalid_value");
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

bool flag(const json::object& body, const char* name, bool standard) {
  const json::value* v = body.if_contains(name);
  return v == nullptr || v->is_null() ? standard : v->get_bool();
}

}  // namespace

Api::Api(std::shared_ptr<const Model> model, ApiOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  if (!options_.chat_template.empty() || !model_->chat_template_source().empty()) {
    chat_template_ = require_chat_template(*model_, options_.chat_template);
    tool_format_ = ToolFormat::find(*model_, *chat_template_, template_source());
    if (!tool_format_->has_channels()) marks_ = find_reasoning_marks(*model_, template_source());
  }
}

std::string Api::template_source() const {
  return options_.chat_template.empty() ? std::string(model_->chat_template_source()) : options_.chat_template;
}

json::object Api::checked_body(Where where, std::string_view text, std::vector<std::string>& ignored) const {
  json::value body = read_json(
      text, {.depth_max = static_cast<int>(options_.limits.json_depth), .depth_raised_by = "--max-json-depth"});
  if (!body.is_object()) throw ApiError(400, "the body is no JSON object");
  check_fields(body.get_object(), where, options_.lenient, ignored, options_.limits);
  return std::move(body.get_object());
}

void Api::check_model(const std::string& name) const {
  const auto& names = options_.names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return;
  throw ApiError(404, fmt::format("there is no model '{}': served is {}", name, fmt::join(names, ", ")), "model",
                 "model_not_found");
}

namespace {

std::string text_of(const json::value* content) {
  std::string text;
  if (content == nullptr || content->is_null()) return text;
  if (content->is_string()) return std::string(view(content->get_string()));
  for (const json::value& part : content->get_array()) text += view(part.get_object().at("text").get_string());
  return text;
}

const json::array* array_of(const json::object& object, const char* name) {
  const json::value* v = object.if_contains(name);
  return v != nullptr && v->is_array() ? &v->get_array() : nullptr;
}

std::vector<Message> messages_of(const json::object& body) {
  std::vector<Message> messages;
  for (const json::value& item : body.at("messages").get_array()) {
    const json::object& m = item.get_object();
    const std::string at = fmt::format("messages[{}]", messages.size());
    const auto only_of = [&](const char* field, const char* role, const std::string& found) {
      if (m.contains(field) && !m.at(field).is_null() && found != role) {
        throw ApiError(400,
                       fmt::format("{}.{}: stands in messages of role {}, found in one of {}", at, field, role, found),
                       fmt::format("{}.{}", at, field), "invalid_value");
      }
    };
    Message message;
    const std::string role = text_member(m, "role");
    message.role = role == "developer" ? "system" : role;
    message.content = text_of(m.if_contains("content"));
    only_of("tool_calls", "assistant", role);
    only_of("reasoning_content", "assistant", role);
    only_of("tool_call_id", "tool", role);
    only_of("name", "tool", role);
    if (const json::array* calls = array_of(m, "tool_calls")) {
      for (const json::value& call : *calls) {
        const json::object& function = call.get_object().at("function").get_object();
        message.tool_calls.push_back(
            {text_member(call.get_object(), "id"), text_member(function, "name"), text_member(function, "arguments")});
      }
    }
    const json::value* content = m.if_contains("content");
    if ((content == nullptr || content->is_null()) && message.tool_calls.empty()) {
      throw ApiError(400, fmt::format("{}.content is missing: needs a string or an array", at), at + ".content",
                     "missing_required_parameter");
    }
    if (role == "tool" && text_member(m, "tool_call_id").empty()) {
      throw ApiError(400, fmt::format("{}.tool_call_id is missing: needs the id of the call that it answers", at),
                     at + ".tool_call_id", "missing_required_parameter");
    }
    message.reasoning_content = text_member(m, "reasoning_content");
    message.tool_call_id = text_member(m, "tool_call_id");
    message.name = text_member(m, "name");
    messages.push_back(std::move(message));
  }
  return messages;
}

// Whether a template's text has this name as a word of its own.
bool has_word(std::string_view text, std::string_view name) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = text.find(name); !name.empty() && at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) return true;
  }
  return false;
}

}  // namespace

// The template's further variables. effort: reasoning_effort, and the field that has it.
std::string Api::variables_of(const json::object& body, std::string_view effort_field) const {
  constexpr std::string_view kOurs[] = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};
  json::object variables;
  if (!options_.template_variables.empty()) variables = json::parse(options_.template_variables).get_object();
  const std::string source = template_source();
  const auto add = [&](const std::string& name, const std::string& field, const json::value& value) {
    if (!has_word(source, name) || std::find(std::begin(kOurs), std::end(kOurs), name) != std::end(kOurs)) {
      throw ApiError(400, fmt::format("{}: the model's chat template does not know {}", field, name), field,
                     "unsupported_parameter");
    }
    variables[name] = value;
  };
  if (const json::value* v = body.if_contains("chat_template_kwargs"); v != nullptr && v->is_object()) {
    for (const auto& [key, value] : v->get_object())
      add(std::string(key), fmt::format("chat_template_kwargs.{}", std::string(key)), value);
  }
  const json::value* reasoning = member(body, "reasoning");
  const json::value* effort =
      reasoning != nullptr ? member(reasoning->get_object(), "effort") : member(body, "reasoning_effort");
  if (effort != nullptr) add("reasoning_effort", std::string(effort_field), *effort);
  if (const json::value* v = member(body, "enable_thinking")) add("enable_thinking", "enable_thinking", *v);
  if (options_.n_reasoning_max == 0 && !variables.contains("enable_thinking") &&
      source.find("enable_thinking") != std::string::npos) {
    variables["enable_thinking"] = false;
  }
  return variables.empty() ? "" : json::serialize(variables);
}

std::vector<TextPiece> Api::rendered(const std::vector<Message>& messages, const PromptExtras& extras) const {
  if (!chat_template_) throw ApiError(400, "the model has no chat template: /v1/completions takes raw text");
  const TemplateInput input = with_token_texts(*model_, {});
  return tool_format_->render(*chat_template_, messages, extras, input.bos_token, input.eos_token);
}

std::vector<std::vector<TokenId>> Api::texts_of(const json::object& body, std::string_view name, int64_t n_max,
                                                std::optional<bool> add_eos) const {
  const json::value& prompt = body.at(json::string_view(name.data(), name.size()));
  const int64_t vocab_size = model_->vocab_size();
  const auto encode = [&](const json::value& text) {
    return model_->tokenizer()->encode(view(text.get_string()),
                                       {.parse_special = true, .add_bos = {}, .add_eos = add_eos});
  };
  if (prompt.is_string()) return {encode(prompt)};
  const json::array& list = prompt.get_array();
  const auto kind_of = [](const json::value& v) { return v.is_string() ? 0 : v.is_array() ? 1 : 2; };
  for (size_t i = 0; i < list.size(); ++i) {
    if (kind_of(list[i]) == kind_of(list[0])) continue;
    throw ApiError(400, fmt::format("{}[{}]: needs what {}[0] is: a text, a list of ids or an id", name, i, name),
                   fmt::format("{}[{}]", name, i), "invalid_value");
  }
  if (kind_of(list[0]) == 2) return {ids_of(list, name, vocab_size)};
  if (static_cast<int64_t>(list.size()) > n_max) {
    throw ApiError(400, fmt::format("{}: has {} texts, 1 to {} are served at a time", name, list.size(), n_max),
                   std::string(name), "invalid_value");
  }
  std::vector<std::vector<TokenId>> prompts;
  for (size_t i = 0; i < list.size(); ++i) {
    prompts.push_back(list[i].is_string() ? encode(list[i])
                                          : ids_of(list[i].get_array(), fmt::format("{}[{}]", name, i), vocab_size));
  }
  return prompts;
}

// Nothing is cut: a request that may not end within its context is refused.
void Api::check_room(size_t n_prompt, const Draft& draft) const {
  const auto n = static_cast<int64_t>(n_prompt);
  if (n == 0) throw ApiError(400, "the prompt is empty", "prompt", "invalid_value");
  if (n + draft.max_tokens.value_or(1) - 1 <= options_.n_ctx) return;
  throw ApiError(
      400,
      fmt::format("the prompt has {} tokens{}, the context holds {}: -c of the server raises it", n,
                  draft.max_tokens ? fmt::format(" and {} is {}", draft.max_tokens_field, *draft.max_tokens) : "",
                  options_.n_ctx),
      std::string(draft.max_tokens_field), "context_length_exceeded");
}

Asked Api::read(Where where, std::string_view text, const std::string& client, double weight) const {
  Asked asked;
  const json::object body = checked_body(where, text, asked.ignored);
  Draft& draft = asked.draft;
  draft = read_draft(body, where, options_.defaults);
  check_model(draft.model);
  if (!model_->has_logits()) {
    throw ApiError(
        400,
        fmt::format("{} is an encoder: it writes no text; /v1/embeddings gives its embeddings", options_.names.front()),
        "model", "unsupported_model");
  }
  asked.where = where;
  if (where == kResponses) read_included(body, draft);
  if (draft.n_top_logprobs > 0 && !draft.logprobs) {
    throw ApiError(400,
                   where == kChat ? "top_logprobs: needs logprobs to be true"
                                  : "top_logprobs: needs message.output_text.logprobs in include",
                   "top_logprobs", "invalid_value");
  }
  if (draft.include_usage && !draft.stream) {
    throw ApiError(400, "stream_options.include_usage: needs stream to be true", "stream_options.include_usage",
                   "invalid_value");
  }
  asked.seed = draft.seed ? *draft.seed : options_.seed ? *options_.seed : random_bits() >> 11;  // below 2^53
  asked.id = fmt::format("{}{:016x}{:016x}",
                         where == kChat        ? "chatcmpl-"
                         : where == kResponses ? "resp_"
                                               : "cmpl-",
                         random_bits(), random_bits());
  asked.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  GenerateOptions& generate = draft.generate;
  generate.sampling.seed = asked.seed;
  if (draft.max_tokens) generate.n_predict = *draft.max_tokens;
  generate.n_top_logprobs = draft.logprobs ? draft.n_top_logprobs : -1;
  for (const LogitBias& bias : generate.sampling.logit_bias) {
    if (bias.token < model_->vocab_size()) continue;
    throw ApiError(400,
                   fmt::format("logit_bias.{}: the vocabulary has ids 0 to {}", bias.token, model_->vocab_size() - 1),
                   fmt::format("logit_bias.{}", bias.token), "invalid_value");
  }
  for (size_t i = 0; i < generate.stop_ids.size(); ++i) {
    if (generate.stop_ids[i] < model_->vocab_size()) continue;
    const std::string field = fmt::format("stop_token_ids[{}]", i);
    throw ApiError(400,
                   fmt::format("{}: needs a token id from 0 to {}, found {}", field, model_->vocab_size() - 1,
                               generate.stop_ids[i]),
                   field, "invalid_value");
  }
  const FormAsked wanted = where == kResponses ? response_form(body) : chat_form(body, where == kChat);
  const auto prompts = as_bad_request([&]() -> std::vector<std::vector<TokenId>> {
    if (where == kCompletions) return texts_of(body, "prompt", kPromptsMax, false);
    // Statement by statement: g++ 12 destroys temporaries of both branches of a condition inside braces when one of
    // them throws.
    const auto tools = wanted.callable();
    std::vector<std::vector<TokenId>> one;
    if (where == kChat) {
      one.push_back(
          encode_rendered(*model_, rendered(messages_of(body), {tools, variables_of(body, "reasoning_effort")})));
    } else {
      one.push_back(
          encode_rendered(*model_, rendered(response_messages(body), {tools, variables_of(body, "reasoning.effort")})));
    }
    return one;
  });
  const auto form = form_of(wanted, asked.is_chat());
  asked.has_tools = !wanted.callable().empty();
  for (const Tool& tool : wanted.tools) asked.reading.names.push_back(tool.name);
  asked.reading.tools = wanted.tools;
  if (where == kResponses) asked.told = told_of_response(body, draft);
  for (const std::vector<TokenId>& prompt : prompts) {
    check_room(prompt.size(), draft);
    for (int64_t i = 0; i < draft.n; ++i) {
      Request request{prompt, generate, client, weight, client + '\n' + draft.cache_salt};
      request.generate.request = static_cast<uint64_t>(i);
      as_bad_request([&] { hold(asked, form, prompt, request.generate); });
      asked.requests.push_back(std::move(request));
    }
  }
  return asked;
}

std::string Api::tokenize(std::string_view text) const {
  std::vector<std::string> ignored;
  const json::object body = checked_body(kTokenize, text, ignored);
  check_model(read_draft(body, kTokenize, {}).model);
  const bool special = flag(body, "add_special", false);
  EncodeOptions options{.parse_special = flag(body, "parse_special", true), .add_bos = {}, .add_eos = {}};
  if (!special) options.add_bos = options.add_eos = false;
  std::string list;
  const Tokenizer& tokenizer = *model_->tokenizer();
  const bool pieces = flag(body, "with_pieces", false);
  for (const TokenId id : tokenizer.encode(view(body.at("content").get_string()), options)) {
    const std::string piece = pieces ? tokenizer.piece(id) : std::string();
    list += list.empty() ? "" : ",";
    if (!pieces) {
      list += std::to_string(id);
    } else if (find_invalid_utf8(piece)) {  // as bytes, since no string holds it
      list += fmt::format(R"({{"id":{},"piece":[{}]}})", id,
                          fmt::join(reinterpret_cast<const unsigned char*>(piece.data()),
                                    reinterpret_cast<const unsigned char*>(piece.data()) + piece.size(), ","));
    } else {
      list += fmt::format(R"({{"id":{},"piece":{}}})", id, json_quoted(piece));
    }
  }
  return fmt::format(R"({{"tokens":[{}]}})", list);
}

std::string Api::detokenize(std::string_view text) const {
  std::vector<std::string> ignored;
  const json::object body = checked_body(kDetokenize, text, ignored);
  check_model(read_draft(body, kDetokenize, {}).model);
  const std::vector<TokenId> ids = ids_of(body.at("tokens").get_array(), "tokens", model_->vocab_size());
  return fmt::format(R"({{"content":{}}})", json_quoted(model_->tokenizer()->decode(ids, true)));
}

std::string Api::apply_template(std::string_view text) const {
  std::vector<std::string> ignored;
  const json::object body = checked_body(kTemplate, text, ignored);
  check_model(read_draft(body, kTemplate, {}).model);
  return as_bad_request([&] {
    std::string prompt;
    for (const TextPiece& piece :
         rendered(messages_of(body), {chat_form(body, true).tools, variables_of(body, "reasoning_effort")}))
      prompt += piece.text;
    return fmt::format(R"({{"prompt":{}}})", json_quoted(prompt));
  });
}

}  // namespace assay::api
