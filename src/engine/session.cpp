// Conversations.
#include "assay/session.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

#include "assay/error.h"
#include "assay/utf8.h"

namespace assay {

namespace json = boost::json;

namespace {

json::array to_json(const std::vector<Message>& messages) {
  json::array list;
  for (const Message& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
  return list;
}

std::string token_text(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.text(*id)) : std::string();
}

const Tokenizer& require_tokenizer(const Model& model) {
  if (!model.tokenizer())
    throw Error(Errc::bad_request,
                "the model was loaded without its tokenizer, which a conversation needs");
  return *model.tokenizer();
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
    if (std::find(std::begin(kRoles), std::end(kRoles), m.role) == std::end(kRoles)) {
      throw Error(
          Errc::bad_request,
          fmt::format(
              "the session file has a message of role '{}': needs system, user or assistant",
              m.role));
    }
    messages.push_back(std::move(m));
  }
  return messages;
}

}  // namespace

std::shared_ptr<const ChatTemplate> require_chat_template(const Model& model,
                                                          std::string_view text) {
  if (!text.empty()) return ChatTemplate::parse(text);
  if (model.chat_template()) return model.chat_template();
  throw Error(
      Errc::bad_request,
      fmt::format("{}: the file has no chat template: give one with --chat-template FILE, or "
                  "use the raw text with --no-chat-template",
                  model.path()));
}

namespace {

TemplateInput chat_input(const Tokenizer& tokenizer, const std::vector<Message>& messages) {
  for (const Message& m : messages)
    require_utf8(m.content, fmt::format("the message of role {}", m.role));
  TemplateInput input;
  input.messages_json = json::serialize(to_json(messages));
  input.bos_token = token_text(tokenizer, tokenizer.bos());
  input.eos_token = token_text(tokenizer, tokenizer.eos());
  return input;
}

}  // namespace

std::vector<TokenId> chat_prompt(const Model& model, const ChatTemplate& chat_template,
                                 const std::vector<Message>& messages) {
  const Tokenizer& tokenizer = require_tokenizer(model);
  const TemplateInput input = chat_input(tokenizer, messages);
  const std::vector<TextPiece> pieces = chat_template.render_pieces(input);
  EncodeOptions options;
  const bool begins_with_bos = !input.bos_token.empty() && !pieces.empty() &&
                               pieces.front().parse_special &&
                               pieces.front().text.starts_with(input.bos_token);
  if (begins_with_bos) options.add_bos = false;
  options.add_eos = false;
  return tokenizer.encode(pieces, options);
}

std::string chat_prompt_text(const Model& model, const ChatTemplate& chat_template,
                             const std::vector<Message>& messages) {
  return chat_template.render(chat_input(require_tokenizer(model), messages));
}

struct ChatSession::State {
  Context context;
  Generator generator;
  std::shared_ptr<const ChatTemplate> chat_template;
  GenerateOptions options;
  std::string system;
  std::vector<Message> messages;  // without the system message
  uint64_t n_answers = 0;         // answers so far, kept or not: the request number of the next

  State(Context c, std::shared_ptr<const ChatTemplate> t, GenerateOptions o, std::string s)
      : context(std::move(c)),
        generator(context),
        chat_template(std::move(t)),
        options(std::move(o)),
        system(std::move(s)) {}

  std::vector<Message> with_system() const {
    std::vector<Message> all;
    if (!system.empty()) all.push_back({"system", system});
    all.insert(all.end(), messages.begin(), messages.end());
    return all;
  }

  Generation answer(const Generator::TextSink& sink, const std::function<bool()>& cancelled) {
    options.request = n_answers;
    const std::vector<TokenId> prompt = chat_prompt(context.model(), *chat_template, with_system());
    Generation result = generator.run(prompt, options, sink, cancelled);
    n_answers += 1;
    messages.push_back({"assistant", result.text});
    return result;
  }
};

ChatSession::ChatSession(Context context, std::shared_ptr<const ChatTemplate> chat_template,
                         GenerateOptions options, std::string system)
    : state_(std::make_unique<State>(std::move(context), std::move(chat_template),
                                     std::move(options), std::move(system))) {}
ChatSession::~ChatSession() = default;
ChatSession::ChatSession(ChatSession&&) noexcept = default;
ChatSession& ChatSession::operator=(ChatSession&&) noexcept = default;

Generation ChatSession::say(std::string text, const Generator::TextSink& sink,
                            const std::function<bool()>& cancelled) {
  const std::vector<Message> before = state_->messages;
  try {
    state_->messages.push_back({"user", std::move(text)});
    return state_->answer(sink, cancelled);
  } catch (...) {
    state_->messages = before;
    throw;
  }
}

Generation ChatSession::regenerate(const Generator::TextSink& sink,
                                   const std::function<bool()>& cancelled) {
  const std::vector<Message> before = state_->messages;
  try {
    while (!state_->messages.empty() && state_->messages.back().role == "assistant")
      state_->messages.pop_back();
    if (state_->messages.empty())
      throw Error(Errc::bad_request, "there is no message to answer again");
    return state_->answer(sink, cancelled);
  } catch (...) {
    state_->messages = before;
    throw;
  }
}

void ChatSession::set_system(std::string text) {
  require_utf8(text, "the system message");
  state_->system = std::move(text);
}

void ChatSession::clear() { state_->messages.clear(); }
const std::vector<Message>& ChatSession::messages() const noexcept { return state_->messages; }
GenerateOptions& ChatSession::options() noexcept { return state_->options; }
const Context& ChatSession::context() const noexcept { return state_->context; }

std::string ChatSession::save() const {
  const json::object all = {{"assay_session", 1},
                            {"model", std::string(state_->context.model().name())},
                            {"messages", to_json(state_->with_system())}};
  return json::serialize(all) + "\n";
}

void ChatSession::load(std::string_view text) {
  json::error_code no_json;
  const json::value all = json::parse(json::string_view(text.data(), text.size()), no_json);
  if (no_json) not_a_session("it is no JSON");
  const json::object* const object = all.if_object();
  const json::value* const version = object ? object->if_contains("assay_session") : nullptr;
  if (version == nullptr) not_a_session("it has no \"assay_session\"");
  if (*version != 1) throw Error(Errc::bad_request, "the session file has another version than 1, the only one that is known");
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
}

}  // namespace assay
