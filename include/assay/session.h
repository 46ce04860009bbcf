// A conversation: messages, the prompt that a chat template makes of them, and answers. What two
// prompts have in common at their beginning stays in the KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/chat.h"
#include "assay/context.h"
#include "assay/generate.h"
#include "assay/reasoning.h"
#include "assay/scheduler.h"

namespace assay {

// A function that an answer asks to be called (assay/tools.h).
struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON text
};

struct Message {
  std::string role;  // "system", "user", "assistant"; with tools also "tool": what a call came to
  std::string content;
  std::string reasoning_content = {};        // of the assistant: what it thought before, apart from its answer
  std::vector<ToolCall> tool_calls = {};     // of the assistant
  std::string tool_call_id = {}, name = {};  // of a tool: which call it answers, and whose
};

// What a GGUF file says about chatting; a vocabulary-only file will do. Error(bad_request) where it
// has no template.
struct ChatFacts {
  std::string chat_template;  // Jinja
  std::string bos_token;      // as text; empty: none
  std::string eos_token;
};
ChatFacts read_chat_facts(const std::string& path);

// The template that a model is talked to with: `text` (Jinja) if there is any, else the file's own.
// Error(bad_request) where there is neither, or `text` is no template that can be served.
std::shared_ptr<const ChatTemplate> require_chat_template(const Model& model, std::string_view text = {});

// The prompt's tokens. What comes from the messages stays text, whatever it looks like; exactly one
// beginning-of-sequence token where the file asks for one. variables_json: an object of further
// variables of the template; empty: none. Error(bad_request) for a message that is not UTF-8 or that
// the template refuses.
std::vector<TokenId> chat_prompt(const Model& model, const ChatTemplate& chat_template,
                                 const std::vector<Message>& messages, const std::string& variables_json = {});

// The same in two steps: what a template is given with the texts of the file's tokens filled in, and the tokens of what
// it rendered.
TemplateInput with_token_texts(const Model& model, TemplateInput input);
std::vector<TokenId> encode_rendered(const Model& model, std::span<const TextPiece> pieces);

// The tokens of one prompt: as the only message of a user, after the system message if there is one, or, without a
// template, as raw text in which control tokens are tokens.
std::vector<TokenId> prompt_tokens(const Model& model, const ChatTemplate* chat_template,
                                   const std::optional<std::string>& system, std::string_view prompt,
                                   const std::string& variables_json = {});

// What a conversation does where its context is full: it ends the answer and refuses the next, or
// leaves its oldest turns out of the prompt from then on, and reads what is left anew. The system
// message and the last message of the user stay.
enum class WhenFull { stop, drop_oldest };
struct DroppedTurns {
  int64_t n_messages = 0;
  int64_t n_tokens = 0;  // by which the prompt is shorter
};

// The same as text.
std::string chat_prompt_text(const Model& model, const ChatTemplate& chat_template,
                             const std::vector<Message>& messages);

class ChatSession {  // one thread at a time
 public:
  // The scheduler is the session's own: it keeps what turns have in common, and guesses ahead where its options say so.
  // system: the system message; empty: none. The template may be any (see require_chat_template).
  ChatSession(std::unique_ptr<Scheduler> scheduler, std::shared_ptr<const ChatTemplate> chat_template,
              GenerateOptions options, std::string system = {});
  ~ChatSession();
  ChatSession(ChatSession&&) noexcept;
  ChatSession& operator=(ChatSession&&) noexcept;

  // One turn. An Error leaves the conversation as it was, and so does a cancel before the answer's
  // first token; one that is cancelled later stays in it as far as it came.
  Generation say(std::string text, const Generator::TextSink& sink = {}, const std::function<bool()>& cancelled = {});
  // Another answer to the last message of the user: with the same seed a different draw.
  // Error(bad_request) where there is none.
  Generation regenerate(const Generator::TextSink& sink = {}, const std::function<bool()>& cancelled = {});

  void set_system(std::string text);  // from the next turn on; empty: none
  void clear();                       // forgets all turns; the system message stays
  // Forgets the last message of the user and what came after it; false where there is none.
  bool undo();
  // stop, as at first, or drop_oldest, of which on_drop is told before the answer goes on.
  void set_when_full(WhenFull when_full, std::function<void(const DroppedTurns&)> on_drop = {});
  // Parts answers (assay/reasoning.h): what say() shows and returns is the answer alone, and later prompts have the
  // reasoning where the template puts it: as reasoning_content where it knows that, else before the content between its
  // marks, from where templates that leave it out of earlier turns take it.
  void set_reasoning(ReasoningOptions reasoning);
  void set_reasoning_sink(Generator::TextSink sink);
  // Further variables of the template, from the next turn on: a JSON object; empty: none.
  void set_template_variables(std::string json);
  const std::vector<Message>& messages() const noexcept;  // all, also those that were dropped
  int64_t n_messages_dropped() const noexcept;            // of these, from the first on
  bool did_not_fit() const noexcept;  // the last turn was refused because its prompt is longer than the context
  GenerateOptions& options() noexcept;
  void set_progress(std::function<void(int64_t done, int64_t total)> progress);  // of each turn: as Request's
  const Context& context() const noexcept;

  std::string save() const;  // JSON: {"assay_session": 1, "model": name, "messages": [{"role", "content"}, ...]}
  void load(std::string_view text);  // Error(bad_request) for anything else; the conversation is then as it was

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay
