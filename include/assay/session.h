// A conversation: messages, the prompt that a chat template makes of them, and answers. What two
// prompts have in common at their beginning stays in the KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "assay/chat.h"
#include "assay/context.h"
#include "assay/generate.h"

namespace assay {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
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
// Error(bad_request) where there is neither.
std::shared_ptr<const ChatTemplate> require_chat_template(const Model& model,
                                                          std::string_view text = {});

// The prompt's tokens. What comes from the messages stays text, whatever it looks like; exactly one
// beginning-of-sequence token where the file asks for one. Error(bad_request) for a message that is
// not UTF-8 or that the template refuses.
std::vector<TokenId> chat_prompt(const Model& model, const ChatTemplate& chat_template,
                                 const std::vector<Message>& messages);

// The same as text.
std::string chat_prompt_text(const Model& model, const ChatTemplate& chat_template,
                             const std::vector<Message>& messages);

class ChatSession {
 public:
  // system: the system message; empty: none. The template may be any (see require_chat_template).
  ChatSession(Context context, std::shared_ptr<const ChatTemplate> chat_template,
              GenerateOptions options, std::string system = {});
  ~ChatSession();
  ChatSession(ChatSession&&) noexcept;
  ChatSession& operator=(ChatSession&&) noexcept;

  // One turn. An Error leaves the conversation as it was; a cancelled answer stays in it as far as
  // it came.
  Generation say(std::string text, const Generator::TextSink& sink = {},
                 const std::function<bool()>& cancelled = {});
  // Another answer to the last message of the user: with the same seed a different draw.
  // Error(bad_request) where there is none.
  Generation regenerate(const Generator::TextSink& sink = {},
                        const std::function<bool()>& cancelled = {});

  void set_system(std::string text);  // from the next turn on; empty: none
  void clear();                       // forgets all turns; the system message stays
  const std::vector<Message>& messages() const noexcept;
  GenerateOptions& options() noexcept;
  const Context& context() const noexcept;

  std::string save()
      const;  // JSON: {"assay_session": 1, "model": name, "messages": [{"role", "content"}, ...]}
  void load(std::string_view
                text);  // Error(bad_request) for anything else; the conversation is then as it was

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay
