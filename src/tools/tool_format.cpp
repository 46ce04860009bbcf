// The public face of formats, and prompts with tools in them.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "assay/error.h"
#include "assay/utf8.h"
#include "chat/from_boost.h"
#include "tools/format.h"

namespace assay {

namespace json = boost::json;
using tools::Format;
using tools::Part;

namespace {

// The control tokens whose text is part of `text`, longest first.
std::vector<std::string> control_texts(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> found;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.kind(id) != TokenKind::control) continue;
    std::string piece = tokenizer.piece(id);
    if (piece.size() > 1 && text.find(piece) != std::string_view::npos) found.push_back(std::move(piece));
  }
  std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
    return a.size() > b.size() || (a.size() == b.size() && a < b);
  });
  return found;
}

std::string all_text(const Format& f) {
  if (f.form == Format::Form::harmony)
    return "<|channel|>\n<|message|>\n<|constrain|>\n<|end|>\n<|start|>\n<|call|>\n<|return|>";
  std::string text = f.before + "\n" + f.between + "\n" + f.after;
  for (const Part& part : f.call) text += "\n" + part.text;
  const tools::ArgumentMarks& a = f.arguments;
  for (const std::string& mark :
       {a.begin, a.open, a.middle, a.text_middle, a.close, a.behind, a.between, a.end, a.quote})
    text += "\n" + mark;
  return text;
}

}  // namespace

ToolFormat::ToolFormat(std::unique_ptr<const Format> format) : format_(std::move(format)) {}
ToolFormat::~ToolFormat() = default;

std::shared_ptr<const ToolFormat> ToolFormat::find(const ChatTemplate& chat_template, std::string_view source,
                                                   const std::string& bos, const std::string& eos,
                                                   std::span<const std::string> ends) {
  return std::make_shared<const ToolFormat>(
      std::make_unique<const Format>(tools::find_format(chat_template, source, bos, eos, ends)));
}

std::shared_ptr<const ToolFormat> ToolFormat::find(const Model& model, const ChatTemplate& chat_template,
                                                   std::string_view source) {
  const TemplateInput input = with_token_texts(model, {});
  std::vector<std::string> ends;
  for (const TokenId id : model.tokenizer()->end_of_generation()) ends.push_back(model.tokenizer()->piece(id));
  Format format = tools::find_format(chat_template, source, input.bos_token, input.eos_token, ends);
  format.marks = control_texts(*model.tokenizer(), all_text(format));
  return std::make_shared<const ToolFormat>(std::make_unique<const Format>(std::move(format)));
}

std::string_view ToolFormat::name() const noexcept { return format_->name; }
bool ToolFormat::is_generic() const noexcept { return format_->generic; }
bool ToolFormat::is_known() const noexcept { return format_->known; }
bool ToolFormat::is_parallel() const noexcept { return format_->parallel; }

bool ToolFormat::has_channels() const noexcept { return format_->form == Format::Form::harmony; }

void show_call_marks(const ToolFormat& format, const Tokenizer& tokenizer, GenerateOptions& options) {
  for (const std::string& text : format.format().marks) {
    const std::optional<TokenId> id = tokenizer.find(text);
    if (id && !options.special) options.visible.push_back(*id);
  }
}

std::string ToolFormat::example() const {
  const std::vector<ToolCall> calls = {{"abcdefgh1", "NAME", "{\"KEY\": \"VALUE\"}"}, {"abcdefgh2", "OTHER", "{}"}};
  return tools::write_calls(*format_, std::span(calls).first(format_->parallel ? 2 : 1));
}

namespace {

// Messages as a template takes them. Text that we write and that has marks of the format is kept apart by a word that
// stands in no message, so that its marks become tokens where those of a user would stay text.
class MessageWriter {
 public:
  MessageWriter(const Format& format, const std::vector<Message>& messages, const PromptExtras& extras)
      : f_(format), extras_(extras) {
    std::string all = extras.variables_json;
    for (const Message& m : messages) {
      all += m.content + m.reasoning_content;
      for (const ToolCall& c : m.tool_calls) all += c.arguments;
    }
    for (int i = 0; word_.empty() || all.find(word_) != std::string::npos; ++i)
      word_ = fmt::format("\u27e6{}\u27e7", i);
    for (const Message& m : messages) add(m);
    if (!extras.tools.empty() && !f_.lists_tools) list_tools();
    join_system();
  }

  TemplateInput input() const {
    TemplateInput input;
    input.messages = chat::list_of(messages_);
    if (!extras_.tools.empty() && f_.lists_tools) {
      TemplateValue::List& tools = input.tools.emplace();
      for (const Tool& tool : extras_.tools) tools.push_back(TemplateValue::from_json(tool.json, "chat input: tools"));
    }
    if (!extras_.variables_json.empty()) input.extra = template_dict(extras_.variables_json, "chat input: extra");
    return input;
  }

  // The marked texts put back, as text of the template's own.
  std::vector<TextPiece> unmark(std::vector<TextPiece> pieces) const {
    if (ours_.empty()) return pieces;
    std::vector<TextPiece> result;
    for (TextPiece& piece : pieces) {
      for (size_t at = 0; (at = piece.text.find(word_)) != std::string::npos;) {
        const size_t number = at + word_.size(), end = piece.text.find(word_, number);
        if (end == std::string::npos) break;
        const size_t i = std::stoul(piece.text.substr(number, end - number));
        result.push_back({piece.text.substr(0, at), piece.parse_special});
        result.push_back({ours_.at(i), true});
        piece.text.erase(0, end + word_.size());
        at = 0;
      }
      result.push_back(std::move(piece));
    }
    std::erase_if(result, [](const TextPiece& p) { return p.text.empty(); });
    return result;
  }

 private:
  std::vector<std::string> jsons() const {
    std::vector<std::string> list;
    for (const Tool& tool : extras_.tools) list.push_back(tool.json);
    return list;
  }

  std::string own(std::string text) {
    ours_.push_back(std::move(text));
    return word_ + std::to_string(ours_.size() - 1) + word_;
  }

  std::string id_of(const std::string& id) const {
    const bool fits =
        id.size() == 9 && std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
    if (!f_.ids_of_nine || fits) return id;
    uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: the same id becomes the same nine
    for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    std::string nine;
    for (int i = 0; i < 9; ++i, hash /= 36) nine += "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
    return nine;
  }

  static bool is_object(const std::string& text) {
    json::error_code failure;
    const json::value v = json::parse(text, failure);
    return !failure && v.is_object();
  }

  void add(const Message& m) {
    require_utf8(m.content + m.reasoning_content, fmt::format("the message of role {}", m.role));
    if (m.role == "tool" && !f_.writes_calls) {
      const std::string text = fmt::format("<tool_response>\n{}\n</tool_response>", m.content);
      json::object* last = messages_.empty() ? nullptr : &messages_.back().get_object();
      if (last != nullptr && last->at("role") == "user" && last_was_tool_) {
        last->at("content") = std::string(last->at("content").get_string()) + "\n" + text;
      } else {
        messages_.push_back(json::object{{"role", "user"}, {"content", text}});
      }
      last_was_tool_ = true;
      return;
    }
    last_was_tool_ = false;
    json::object message = {{"role", m.role}, {"content", m.content}};
    if (!m.reasoning_content.empty())
      message[f_.form == Format::Form::harmony ? "thinking" : "reasoning_content"] = m.reasoning_content;
    if (m.role == "tool") {
      message["tool_call_id"] = id_of(m.tool_call_id);
      if (!m.name.empty()) message["name"] = m.name;
    }
    if (!m.tool_calls.empty()) add_calls(message, m);
    messages_.push_back(std::move(message));
  }

  void add_calls(json::object& message, const Message& m) {
    if (!f_.writes_calls) {
      message["content"] = m.content + (m.content.empty() ? "" : "\n") + own(tools::write_calls(f_, m.tool_calls));
      return;
    }
    json::array calls;
    for (const ToolCall& call : m.tool_calls) {
      // Arguments that are no object go as text; who wrote them sees them again.
      json::value arguments = json::value(call.arguments);
      if (!f_.arguments_as_text && is_object(call.arguments)) arguments = json::parse(call.arguments);
      calls.push_back({{"id", id_of(call.id)},
                       {"type", "function"},
                       {"function", json::object{{"name", call.name}, {"arguments", std::move(arguments)}}}});
    }
    if (m.content.empty() && f_.null_content) message["content"] = nullptr;
    message["tool_calls"] = std::move(calls);
  }

  void list_tools() {
    const std::string list = fmt::format("{}", fmt::join(jsons(), "\n"));
    json::object* system = !messages_.empty() && messages_.front().get_object().at("role") == "system"
                               ? &messages_.front().get_object()
                               : nullptr;
    if (system == nullptr) {
      messages_.insert(messages_.begin(), json::object{{"role", "system"}, {"content", ""}});
      system = &messages_.front().get_object();
    }
    if (f_.tools_in_system) {
      system->emplace("tools", "[" + fmt::format("{}", fmt::join(jsons(), ", ")) + "]");
      return;
    }
    std::string text(system->at("content").get_string());
    if (!text.empty()) text += "\n\n";
    text += fmt::format(
        "You may call functions. These are there, each described in JSON:\n<tools>\n{}\n</tools>\n\n"
        "To call one, write its name and an object of arguments in this form, and nothing after it:\n",
        list);
    const std::vector<ToolCall> call = {{"abcdefgh1", "NAME", R"({"KEY": "VALUE"})"}};
    text += own(tools::write_calls(f_, call));
    if (!f_.writes_calls) text += "\nWhat it came to is told between <tool_response> and </tool_response>.";
    system->at("content") = text;
  }

  // A template without a place for the system's message has it before the user's first, and one that wants roles to
  // alternate has what follows one another as one message.
  void join_system() {
    const auto text_of = [](const json::object& m) {
      return m.at("content").is_string() ? std::string(m.at("content").get_string()) : std::string();
    };
    if (!f_.system_role && !f_.writes_calls && messages_.size() > 1 &&
        messages_[0].get_object().at("role") == "system" && messages_[1].get_object().at("role") == "user") {
      json::object& user = messages_[1].get_object();
      user["content"] = text_of(messages_[0].get_object()) + "\n\n" + text_of(user);
      messages_.erase(messages_.begin());
    }
    for (size_t i = 1; f_.merges_users && !f_.writes_calls && i < messages_.size();) {
      json::object &last = messages_[i - 1].get_object(), &next = messages_[i].get_object();
      if (last.at("role") != "user" || next.at("role") != "user") {
        ++i;
        continue;
      }
      last["content"] = text_of(last) + "\n" + text_of(next);
      messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  const Format& f_;
  const PromptExtras& extras_;
  json::array messages_;
  std::vector<std::string> ours_;
  std::string word_;
  bool last_was_tool_ = false;
};

}  // namespace

std::vector<TextPiece> ToolFormat::render(const ChatTemplate& chat_template, const std::vector<Message>& messages,
                                          const PromptExtras& extras, const std::string& bos,
                                          const std::string& eos) const {
  const MessageWriter writer(*format_, messages, extras);
  TemplateInput input = writer.input();
  input.bos_token = bos;
  input.eos_token = eos;
  return writer.unmark(chat_template.render_pieces(input));
}

}  // namespace assay
