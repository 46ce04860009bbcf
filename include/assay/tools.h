// Functions that a model may ask to be called: how a chat template writes calls, prompts with tools and earlier calls
// in them, constraints that hold an answer to the tools' schemas, and answers parted into reasoning, text and calls as
// they come.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/chat.h"
#include "assay/constraint.h"
#include "assay/generate.h"
#include "assay/reasoning.h"
#include "assay/session.h"

namespace assay {

struct Tool {
  std::string name;        // letters, digits, _ and -, 64 at most
  std::string json;        // as APIs have it: {"type": "function", "function": {"name", "description", "parameters"}}
  std::string parameters;  // JSON Schema of an object; empty: no arguments
};

// What a conversation's template is given besides its messages.
struct PromptExtras {
  std::vector<Tool> tools;
  std::string variables_json;  // an object of further variables; empty: none
};

namespace tools {
struct Format;
}

// How calls are written. It is found by rendering calls with the template and reading what stands around their names
// and arguments. `generic` where the template has no place for calls, or writes their arguments in a way that is not
// read here: then tools stand in the system message, with the form that calls are to have.
class ToolFormat {  // any number of threads at a time
 public:
  // ends: texts of the end-of-generation tokens.
  static std::shared_ptr<const ToolFormat> find(const ChatTemplate& chat_template, std::string_view source,
                                                const std::string& bos, const std::string& eos,
                                                std::span<const std::string> ends);
  static std::shared_ptr<const ToolFormat> find(const Model& model, const ChatTemplate& chat_template,
                                                std::string_view source);

  std::string_view name() const noexcept;  // of a known format; "template": found and not in the table; "generic"
  bool is_generic() const noexcept;
  bool is_known() const noexcept;      // in the table
  bool is_parallel() const noexcept;   // several calls in one answer can be written
  bool has_channels() const noexcept;  // reasoning and answer are told apart by the format itself, as gpt-oss does
  std::string example() const;         // of two calls, or one, as the model is to write them

  // What the template renders. Error(bad_request) where it refuses the messages.
  std::vector<TextPiece> render(const ChatTemplate& chat_template, const std::vector<Message>& messages,
                                const PromptExtras& extras, const std::string& bos, const std::string& eos) const;

  explicit ToolFormat(std::unique_ptr<const tools::Format> format);  // for the library itself
  ~ToolFormat();
  const tools::Format& format() const noexcept { return *format_; }

 private:
  std::unique_ptr<const tools::Format> format_;
};

// Which calls an answer may have.
struct CallRules {
  std::vector<Tool> tools;
  bool must = false;           // an answer is a call: from its first byte
  bool parallel = true;        // several at a time
  std::string content_schema;  // JSON Schema of an answer that is no call; empty: free text
};

// The whole answer, behind its reasoning: free text until a call opens, then calls whose arguments are what their
// schemas say. SchemaError with pointers that begin with /tools/N/function/parameters, or, of content_schema, with
// /content.
std::shared_ptr<const Constraint> call_constraint(const ToolFormat& format, const CallRules& rules);

// The control tokens that must appear in an answer's text for its calls to be found.
void show_call_marks(const ToolFormat& format, const Tokenizer& tokenizer, GenerateOptions& options);

struct AnswerPiece {
  enum class Kind { reasoning, text, call, arguments };
  Kind kind = Kind::text;
  std::string text;     // of a call: the function's name
  std::string id = {};  // of a call, where the model writes one
  size_t i_call = 0;    // of calls and their arguments
};

// Reads an answer, however it is cut into pieces.
class AnswerReader {  // one thread at a time
 public:
  struct Options {
    std::shared_ptr<const ToolFormat> format;  // null: no calls
    std::optional<ReasoningMarks> marks;       // none: reasoning is text
    bool reasoning_is_open = false;            // the prompt opened it
    std::vector<std::string> names = {};       // of tools: what else would be a call is text; none: any name
    // Their schemas tell texts from other values in formats that write a text without quotes; a value of which nothing
    // is known is what it looks like.
    std::vector<Tool> tools = {};
  };
  explicit AnswerReader(Options options);
  ~AnswerReader();
  AnswerReader(AnswerReader&&) noexcept;
  AnswerReader& operator=(AnswerReader&&) noexcept;

  std::vector<AnswerPiece> push(std::string_view text);  // what is certain now
  std::vector<AnswerPiece> finish();                     // what is left
  bool in_reasoning() const noexcept;
  size_t n_calls() const noexcept;
  bool calls_are_whole() const noexcept;  // the last call's arguments came to their end

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The whole of one.
struct ReadAnswer {
  std::string reasoning, text;
  std::vector<ToolCall> calls;
};
ReadAnswer read_answer(AnswerReader::Options options, std::string_view text);

}  // namespace assay
