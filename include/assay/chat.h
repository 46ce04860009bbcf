// Chat templates: messages to prompt text, by the Jinja template that a model's file carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "assay/tokenizer.h"

namespace assay {

struct TemplateLimits {
  int64_t steps_max = 10'000'000;  // evaluated nodes
  int64_t output_bytes_max = 16 << 20;
  int64_t value_bytes_max = 64 << 20;  // memory of strings and lists made on the way
  int depth_max = 100;                 // macro calls, nested expressions and blocks
};

// A value that a template is given: what JSON can say.
struct TemplateValue {
  using List = std::vector<TemplateValue>;
  using Dict =
      std::vector<std::pair<std::string, TemplateValue>>;  // in order; of a key met again the last value counts
  struct Digits {  // a whole number beyond 64 bits, which a template can print alone
    std::string text;
  };
  std::variant<std::nullptr_t, bool, int64_t, double, Digits, std::string, List, Dict> held = nullptr;

  TemplateValue() = default;
  TemplateValue(std::nullptr_t) {}
  TemplateValue(bool b) : held(b) {}
  TemplateValue(int number) : held(int64_t{number}) {}
  TemplateValue(int64_t number) : held(number) {}
  TemplateValue(double number) : held(number) {}
  TemplateValue(Digits digits) : held(std::move(digits)) {}
  TemplateValue(std::string text) : held(std::move(text)) {}
  TemplateValue(std::string_view text) : held(std::string(text)) {}
  TemplateValue(const char* text) : held(std::string(text)) {}
  TemplateValue(List list) : held(std::move(list)) {}
  TemplateValue(Dict dict) : held(std::move(dict)) {}

  const List* list() const noexcept { return std::get_if<List>(&held); }  // nullptr: it is something else
  const Dict* dict() const noexcept { return std::get_if<Dict>(&held); }
  const TemplateValue* find(std::string_view key) const noexcept;  // nullptr: no dict, or not in it

  // JSON text from outside. Error(bad_request) that begins with `what`, the text's name, where it is no JSON or goes
  // beyond depth_max or value_bytes_max of the limits.
  static TemplateValue from_json(std::string_view text, std::string_view what, const TemplateLimits& limits = {});
};

// The same for text that has to be an array, or an object.
TemplateValue::List template_list(std::string_view json, std::string_view what, const TemplateLimits& limits = {});
TemplateValue::Dict template_dict(std::string_view json, std::string_view what, const TemplateLimits& limits = {});

struct TemplateInput {
  TemplateValue::List messages;              // dicts with role and content, as chat APIs have them
  std::optional<TemplateValue::List> tools;  // nullopt: none
  TemplateValue::Dict extra;                 // further variables
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  std::optional<int64_t> now_unix;  // for strftime_now; nullopt: the clock
};

class ChatTemplate {  // any number of threads at a time
 public:
  // Parses; Error(bad_file) with line and column for a template that is no valid Jinja or goes beyond a limit.
  static std::shared_ptr<const ChatTemplate> parse(std::string_view source, const TemplateLimits& limits = {});

  // The prompt text. Error(bad_request) where the template raises, reads what is not there or a limit is hit.
  std::string render(const TemplateInput& input) const;
  // The same text in pieces: what came from the input's strings has parse_special == false, the template's own text has
  // true, so that a user's text that looks like a special token stays text.
  std::vector<TextPiece> render_pieces(const TemplateInput& input) const;

  struct State;
  explicit ChatTemplate(std::unique_ptr<const State> state);  // for the library itself
  ~ChatTemplate();

 private:
  std::unique_ptr<const State> state_;
};

}  // namespace assay
