// Conversations.
#include "assay/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <utility>

#include "assay/error.h"
#include "assay/utf8.h"

namespace assay {

namespace json = boost::json;

namespace {

json::array to_json(const std::vector<Message>& messages) {
  json::array list;
  for (const Message& m : messages) {
    json::object message = {{"role", m.role}, {"content", m.content}};
    if (!m.reasoning_content.empty()) message["reasoning_content"] = m.reasoning_content;
    list.push_back(std::move(message));
  }
  return list;
}

std::string token_text(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.text(*id)) : std::string();
}

const Tokenizer& require_tokenizer(const Model& model) {
  if (!model.tokenizer())
    throw Error(Errc::bad_request, "the model was loaded without its tokenizer, which a conversation needs");
  return *model.tokenizer();
}

std::unique_ptr<Scheduler> require_scheduler(std::unique_ptr<Scheduler> scheduler) {
  if (scheduler == nullptr) throw Error(Errc::bad_request, "a conversation needs a scheduler, found none");
  return scheduler;
}

constexpr std::string_view kRoles[] = {"system", "user", "assistant"};

[[noreturn]] void not_a_session(const std::string& found) {
  throw Error(Errc::bad_request, "no saved conversation (JSON with \"assay_session\" and \"messages\"): " + found);
}

std::vector<Message> messages_from(const json::array& list) {
  std::vector<Message> messages;
  for (const json::value& item : list) {
    const json::object* const object = item.if_object();
    const json::value* const role = object ? object->if_contains("role") : nullptr;
    const json::value* const content = object ? object->if_contains("content") : nullptr;
    if (role == nullptr || content == nullptr || !role->is_string() || !content->is_string())
      not_a_session(fmt::format("message {} needs the texts \"role\" and \"content\"", messages.size() + 1));
    Message m{std::string(role->get_string()), std::string(content->get_string())};
    if (const json::value* reasoning = object->if_contains("reasoning_content")) {
      if (!reasoning->is_string())
        not_a_session(fmt::format("\"reasoning_content\" of message {} needs a text", messages.size() + 1));
      m.reasoning_content = std::string(reasoning->get_string());
    }
    if (std::find(std::begin(kRoles), std::end(kRoles), m.role) == std::end(kRoles)) {
      throw Error(Errc::bad_request,
                  fmt::format("the session file has a message of role '{}': needs system, user or assistant", m.role));
    }
    messages.push_back(std::move(m));
  }
  return messages;
}

}  // namespace

std::shared_ptr<const ChatTemplate> require_chat_template(const Model& model, std::string_view text) {
  if (!text.empty()) {
    try {
      return ChatTemplate::parse(text);
    } catch (const Error& e) {  // what was given is wrong, and not a model's file
      throw Error(Errc::bad_request, e.what());
    }
  }
  if (model.chat_template()) return model.chat_template();
  throw Error(Errc::bad_request,
              fmt::format("{}: the file has no chat template: give one with --chat-template FILE, or "
                          "use the raw text with --no-chat-template",
                          model.path()));
}

namespace {

TemplateInput chat_input(const Tokenizer& tokenizer, const std::vector<Message>& messages,
                         const std::string& variables_json = {}) {
  for (const Message& m : messages)
    require_utf8(m.content + m.reasoning_content, fmt::format("the message of role {}", m.role));
  TemplateInput input;
  for (const Message& m : messages) {
    TemplateValue::Dict message = {{"role", m.role}, {"content", m.content}};
    if (!m.reasoning_content.empty()) message.emplace_back("reasoning_content", m.reasoning_content);
    input.messages.emplace_back(std::move(message));
  }
  if (!variables_json.empty()) input.extra = template_dict(variables_json, "chat input: extra");
  input.bos_token = token_text(tokenizer, tokenizer.bos());
  input.eos_token = token_text(tokenizer, tokenizer.eos());
  return input;
}

}  // namespace

TemplateInput with_token_texts(const Model& model, TemplateInput input) {
  const Tokenizer& tokenizer = require_tokenizer(model);
  input.bos_token = token_text(tokenizer, tokenizer.bos());
  input.eos_token = token_text(tokenizer, tokenizer.eos());
  return input;
}

std::vector<TokenId> encode_rendered(const Model& model, std::span<const TextPiece> pieces) {
  const Tokenizer& tokenizer = require_tokenizer(model);
  const std::string bos = token_text(tokenizer, tokenizer.bos());
  EncodeOptions options;
  const bool begins_with_bos =
      !bos.empty() && !pieces.empty() && pieces.front().parse_special && pieces.front().text.starts_with(bos);
  if (begins_with_bos) options.add_bos = false;
  options.add_eos = false;
  return tokenizer.encode(pieces, options);
}

std::vector<TokenId> chat_prompt(const Model& model, const ChatTemplate& chat_template,
                                 const std::vector<Message>& messages, const std::string& variables_json) {
  return encode_rendered(model,
                         chat_template.render_pieces(chat_input(require_tokenizer(model), messages, variables_json)));
}

std::string chat_prompt_text(const Model& model, const ChatTemplate& chat_template,
                             const std::vector<Message>& messages) {
  return chat_template.render(chat_input(require_tokenizer(model), messages));
}

std::vector<TokenId> prompt_tokens(const Model& model, const ChatTemplate* chat_template,
                                   const std::optional<std::string>& system, std::string_view prompt,
                                   const std::string& variables_json) {
  if (chat_template == nullptr) {
    require_utf8(prompt, "the prompt");
    return require_tokenizer(model).encode(prompt, {.parse_special = true, .add_bos = {}, .add_eos = false});
  }
  std::vector<Message> messages;
  if (system) messages.push_back({"system", *system});
  messages.push_back({"user", std::string(prompt)});
  return chat_prompt(model, *chat_template, messages, variables_json);
}

struct ChatSession::State {
  std::unique_ptr<Scheduler> scheduler;
  const Context& context;
  std::shared_ptr<const ChatTemplate> chat_template;
  GenerateOptions options;
  std::string system;
  std::vector<Message> messages;  // without the system message
  size_t first = 0;               // of messages, where the prompt begins
  WhenFull when_full = WhenFull::stop;
  std::function<void(const DroppedTurns&)> on_drop;
  std::function<void(int64_t, int64_t)> progress;
  std::string variables_json;
  ReasoningOptions reasoning;
  bool did_not_fit = false;
  uint64_t n_answers = 0;  // answers so far, kept or not: the request number of the next

  State(std::unique_ptr<Scheduler> of, std::shared_ptr<const ChatTemplate> t, GenerateOptions o, std::string s)
      : scheduler(require_scheduler(std::move(of))), context(scheduler->context()), chat_template(std::move(t)),
        options(std::move(o)), system(std::move(s)) {}

  std::vector<Message> with_system(size_t from) const {
    std::vector<Message> all;
    if (!system.empty()) all.push_back({"system", system});
    all.insert(all.end(), messages.begin() + static_cast<std::ptrdiff_t>(from), messages.end());
    return all;
  }

  std::vector<TokenId> prompt() const {
    std::vector<Message> all = with_system(first);
    const bool has_marks = reasoning.marks && !reasoning.marks->template_takes_it;
    for (Message& m : all) {
      if (has_marks && !m.reasoning_content.empty()) {
        m.content =
            reasoning.marks->open + "\n" + m.reasoning_content + "\n" + reasoning.marks->close + "\n\n" + m.content;
      }
      if (!reasoning.marks || has_marks) m.reasoning_content.clear();
    }
    return chat_prompt(context.model(), *chat_template, all, variables_json);
  }

  // Where the turn after the first begins, if there is one: nothing after the user's last message
  // is dropped.
  std::optional<size_t> second_turn() const {
    for (size_t i = first + 1; i < messages.size(); ++i) {
      if (messages[i].role == "user") return i;
    }
    return std::nullopt;
  }

  // The prompt; where it and n_answer tokens after it do not fit, less its oldest turns. Room is
  // made at once for a while, since each time reads the rest anew.
  std::vector<TokenId> fitting_prompt(int64_t n_answer) {
    std::vector<TokenId> ids = prompt();
    const int64_t n_ctx = context.n_ctx();
    const auto n_needed = [&] { return static_cast<int64_t>(ids.size()) + n_answer; };
    if (when_full == WhenFull::stop || n_needed() <= n_ctx) return ids;
    const size_t first_before = first;
    const size_t n_before = ids.size();
    for (auto next = second_turn(); next && n_needed() > n_ctx / 4 * 3; next = second_turn()) {
      first = *next;
      ids = prompt();
    }
    if (first != first_before && on_drop) {
      on_drop({static_cast<int64_t>(first - first_before),
               static_cast<int64_t>(n_before) - static_cast<int64_t>(ids.size())});
    }
    return ids;
  }

  std::vector<TokenId> make_room(std::span<const TokenId> answer) {
    std::vector<TokenId> ids = fitting_prompt(static_cast<int64_t>(answer.size()));
    if (static_cast<int64_t>(ids.size() + answer.size()) > context.n_ctx()) return {};
    ids.insert(ids.end(), answer.begin(), answer.end());
    return ids;
  }

  Generation answer(const Generator::TextSink& sink, const std::function<bool()>& cancelled) {
    options.request = n_answers;
    const std::vector<TokenId> ids = fitting_prompt(0);
    did_not_fit = static_cast<int64_t>(ids.size()) > context.n_ctx();
    Request request;
    request.prompt = ids;
    request.generate = options;
    request.progress = progress;
    if (when_full != WhenFull::stop) {
      request.make_room = [this](std::span<const TokenId>, std::span<const TokenId> so_far) {
        return make_room(so_far);
      };
    }
    Generation result = run_parted(*scheduler, std::move(request), reasoning, sink, cancelled);
    if (result.finish_reason == FinishReason::cancelled && result.ids.empty()) return result;
    n_answers += 1;
    messages.push_back({"assistant", result.text, result.reasoning});
    return result;
  }

  // One turn after `change` to the messages. Without an answer everything is as it was.
  template <class Change>
  Generation turn(const Change& change, const Generator::TextSink& sink, const std::function<bool()>& cancelled) {
    std::vector<Message> messages_before = messages;
    const size_t first_before = first;
    const uint64_t n_before = n_answers;
    const auto restore = [&] {
      messages = std::move(messages_before);
      first = first_before;
    };
    try {
      change();
      Generation result = answer(sink, cancelled);
      if (n_answers == n_before) restore();
      return result;
    } catch (...) {
      restore();
      throw;
    }
  }
};

ChatSession::ChatSession(std::unique_ptr<Scheduler> scheduler, std::shared_ptr<const ChatTemplate> chat_template,
                         GenerateOptions options, std::string system)
    : state_(std::make_unique<State>(std::move(scheduler), std::move(chat_template), std::move(options),
                                     std::move(system))) {}
ChatSession::~ChatSession() = default;
ChatSession::ChatSession(ChatSession&&) noexcept = default;
ChatSession& ChatSession::operator=(ChatSession&&) noexcept = default;

Generation ChatSession::say(std::string text, const Generator::TextSink& sink, const std::function<bool()>& cancelled) {
  return state_->turn([&] { state_->messages.push_back({"user", std::move(text)}); }, sink, cancelled);
}

Generation ChatSession::regenerate(const Generator::TextSink& sink, const std::function<bool()>& cancelled) {
  const auto drop_answer = [this] {
    std::vector<Message>& messages = state_->messages;
    while (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
    if (messages.empty()) throw Error(Errc::bad_request, "there is no message to answer again");
  };
  return state_->turn(drop_answer, sink, cancelled);
}

bool ChatSession::undo() {
  std::vector<Message>& messages = state_->messages;
  const auto last = std::find_if(messages.rbegin(), messages.rend(), [](const Message& m) { return m.role == "user"; });
  if (last == messages.rend()) return false;
  messages.erase(last.base() - 1, messages.end());
  if (state_->first >= messages.size()) state_->first = 0;  // what was dropped for it has room again
  return true;
}

void ChatSession::set_when_full(WhenFull when_full, std::function<void(const DroppedTurns&)> on_drop) {
  state_->when_full = when_full;
  state_->on_drop = std::move(on_drop);
}

void ChatSession::set_reasoning(ReasoningOptions reasoning) { state_->reasoning = std::move(reasoning); }

void ChatSession::set_reasoning_sink(Generator::TextSink sink) { state_->reasoning.sink = std::move(sink); }

void ChatSession::set_progress(std::function<void(int64_t, int64_t)> progress) {
  state_->progress = std::move(progress);
}

void ChatSession::set_template_variables(std::string json) { state_->variables_json = std::move(json); }

void ChatSession::set_system(std::string text) {
  require_utf8(text, "the system message");
  state_->system = std::move(text);
}

void ChatSession::clear() {
  state_->messages.clear();
  state_->first = 0;
}
const std::vector<Message>& ChatSession::messages() const noexcept { return state_->messages; }
bool ChatSession::did_not_fit() const noexcept { return state_->did_not_fit; }
int64_t ChatSession::n_messages_dropped() const noexcept { return static_cast<int64_t>(state_->first); }
GenerateOptions& ChatSession::options() noexcept { return state_->options; }
const Context& ChatSession::context() const noexcept { return state_->context; }

std::string ChatSession::save() const {
  const json::object all = {{"assay_session", 1},
                            {"model", std::string(state_->context.model().name())},
                            {"messages", to_json(state_->with_system(0))}};
  return json::serialize(all) + "\n";
}

void ChatSession::load(std::string_view text) {
  json::error_code no_json;
  const json::value all = json::parse(json::string_view(text.data(), text.size()), no_json);
  if (no_json) not_a_session("it is no JSON");
  const json::object* const object = all.if_object();
  const json::value* const version = object ? object->if_contains("assay_session") : nullptr;
  if (version == nullptr) not_a_session("it has no \"assay_session\"");
  if (*version != 1)
    throw Error(Errc::bad_request, "the session file has another version than 1, the only one that is known");
  const json::value* const list = object->if_contains("messages");
  if (list == nullptr || !list->is_array()) not_a_session("it has no list \"messages\"");
  std::vector<Message> messages = messages_from(list->get_array());
  std::string system;
  if (!messages.empty() && messages.front().role == "system") {
    system = std::move(messages.front().content);
    messages.erase(messages.begin());
  }
  state_->system = std::move(system);
  state_->messages = std::move(messages);
  state_->first = 0;
}

}  // namespace assay
