// Requests: bodies to prompts and options.
#include "api/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "api/error.h"
#include "api/json_reader.h"
#include "api/json_text.h"
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
      throw ApiError(400, fmt::format("{}: needs a token id from 0 to {}", field, vocab_size - 1), field, "invalid_value");
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

bool flag(const json::object& body, const char* name, bool standard) {
  const json::value* v = body.if_contains(name);
  return v == nullptr || v->is_null() ? standard : v->get_bool();
}

// The library's refusals of what a request asks for are the request's fault.
template <class F>
auto as_bad_request(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.code == Errc::bad_request) throw ApiError(400, error.what());
    throw;
  }
}

}  // namespace

Api::Api(std::shared_ptr<const Model> model, ApiOptions options) : model_(std::move(model)), options_(std::move(options)) {
  if (!options_.chat_template.empty() || !model_->chat_template_source().empty()) {
    chat_template_ = require_chat_template(*model_, options_.chat_template);
  }
}

std::string Api::template_source() const {
  return options_.chat_template.empty() ? std::string(model_->chat_template_source()) : options_.chat_template;
}

json::object Api::checked_body(Where where, std::string_view text, std::vector<std::string>& ignored) const {
  json::value body = read_json(text);
  if (!body.is_object()) throw ApiError(400, "the body is no JSON object");
  check_fields(body.get_object(), where, options_.lenient, ignored);
  return std::move(body.get_object());
}

void Api::check_model(const std::string& name) const {
  const auto& names = options_.names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return;
  throw ApiError(404, fmt::format("there is no model '{}': served is {}", name, fmt::join(names, ", ")), "model", "model_not_found");
}

std::vector<Message> Api::messages_of(const json::object& body) const {
  std::vector<Message> messages;
  for (const json::value& item : body.at("messages").get_array()) {
    const json::object& m = item.get_object();
    Message message;
    const std::string_view role = view(m.at("role").get_string());
    message.role = role == "developer" ? "system" : role;
    const json::value& content = m.at("content");
    if (content.is_string()) {
      message.content = view(content.get_string());
    } else {
      for (const json::value& part : content.get_array()) message.content += view(part.get_object().at("text").get_string());
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

std::vector<std::vector<TokenId>> Api::texts_of(const json::object& body, std::string_view name, int64_t n_max, std::optional<bool> add_eos) const {
  const json::value& prompt = body.at(json::string_view(name.data(), name.size()));
  const int64_t vocab_size = model_->vocab_size();
  const auto encode = [&](const json::value& text) {
    return model_->tokenizer()->encode(view(text.get_string()), {.parse_special = true, .add_bos = {}, .add_eos = add_eos});
  };
  if (prompt.is_string()) return {encode(prompt)};
  const json::array& list = prompt.get_array();
  const auto kind_of = [](const json::value& v) { return v.is_string() ? 0 : v.is_array() ? 1 : 2; };
  for (size_t i = 0; i < list.size(); ++i) {
    if (kind_of(list[i]) == kind_of(list[0])) continue;
    throw ApiError(400, fmt::format("{}[{}]: needs what {}[0] is: a text, a list of ids or an id", name, i, name), fmt::format("{}[{}]", name, i), "invalid_value");
  }
  if (kind_of(list[0]) == 2) return {ids_of(list, name, vocab_size)};
  if (static_cast<int64_t>(list.size()) > n_max) {
    throw ApiError(400, fmt::format("{}: has {} texts, 1 to {} are served at a time", name, list.size(), n_max), std::string(name), "invalid_value");
  }
  std::vector<std::vector<TokenId>> prompts;
  for (size_t i = 0; i < list.size(); ++i) {
    prompts.push_back(list[i].is_string() ? encode(list[i]) : ids_of(list[i].get_array(), fmt::format("{}[{}]", name, i), vocab_size));
  }
  return prompts;
}

// Nothing is cut: a request that may not end within its context is refused.
void Api::check_room(size_t n_prompt, const Draft& draft) const {
  const auto n = static_cast<int64_t>(n_prompt);
  if (n == 0) throw ApiError(400, "the prompt is empty", "prompt", "invalid_value");
  if (n + draft.max_tokens.value_or(1) - 1 <= options_.n_ctx) return;
  throw ApiError(400,
                 fmt::format("the prompt has {} tokens{}, the context holds {}: -c of the server raises it", n,
                             draft.max_tokens ? fmt::format(" and max_tokens is {}", *draft.max_tokens) : "", options_.n_ctx),
                 draft.max_tokens ? "max_tokens" : "", "context_length_exceeded");
}

Asked Api::read(Where where, std::string_view text, const std::string& client, double weight) const {
  Asked asked;
  const json::object body = checked_body(where, text, asked.ignored);
  Draft& draft = asked.draft;
  draft = read_draft(body, where, options_.defaults);
  check_model(draft.model);
  if (!model_->has_logits()) {
    throw ApiError(400, fmt::format("{} is an encoder: it writes no text; /v1/embeddings gives its embeddings", options_.names.front()), "model",
                   "unsupported_model");
  }
  asked.is_chat = where == kChat;
  if (asked.is_chat && draft.n_top_logprobs > 0 && !draft.logprobs) {
    throw ApiError(400, "top_logprobs: needs logprobs to be true", "top_logprobs", "invalid_value");
  }
  if (draft.include_usage && !draft.stream) {
    throw ApiError(400, "stream_options.include_usage: needs stream to be true", "stream_options.include_usage", "invalid_value");
  }
  asked.seed = draft.seed ? *draft.seed : options_.seed ? *options_.seed : random_bits() >> 11;  // below 2^53
  asked.id = fmt::format("{}-{:016x}{:016x}", asked.is_chat ? "chatcmpl" : "cmpl", random_bits(), random_bits());
  asked.created = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  GenerateOptions& generate = draft.generate;
  generate.sampling.seed = asked.seed;
  if (draft.max_tokens) generate.n_predict = *draft.max_tokens;
  generate.n_top_logprobs = draft.logprobs ? draft.n_top_logprobs : -1;
  for (const LogitBias& bias : generate.sampling.logit_bias) {
    if (bias.token < model_->vocab_size()) continue;
    throw ApiError(400, fmt::format("logit_bias.{}: the vocabulary has ids 0 to {}", bias.token, model_->vocab_size() - 1),
                   fmt::format("logit_bias.{}", bias.token), "invalid_value");
  }
  const auto prompts = as_bad_request([&]() -> std::vector<std::vector<TokenId>> {
    if (!asked.is_chat) return texts_of(body, "prompt", kPromptsMax, false);
    if (!chat_template_) throw ApiError(400, "the model has no chat template: /v1/completions takes raw text");
    return {chat_prompt(*model_, *chat_template_, messages_of(body))};
  });
  for (const std::vector<TokenId>& prompt : prompts) {
    check_room(prompt.size(), draft);
    for (int64_t i = 0; i < draft.n; ++i) {
      Request request{prompt, generate, client, weight, client + '\n' + draft.cache_salt};
      request.generate.request = static_cast<uint64_t>(i);
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
      list += fmt::format(R"({{"id":{},"piece":[{}]}})", id, fmt::join(reinterpret_cast<const unsigned char*>(piece.data()), reinterpret_cast<const unsigned char*>(piece.data()) + piece.size(), ","));
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
  if (!chat_template_) throw ApiError(400, "the model has no chat template");
  return as_bad_request([&] {
    return fmt::format(R"({{"prompt":{}}})", json_quoted(chat_prompt_text(*model_, *chat_template_, messages_of(body))));
  });
}

}  // namespace assay::api
