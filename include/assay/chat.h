// Chat templates: messages to prompt text, by the Jinja template that a model's file carries.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/tokenizer.h"

namespace assay {

struct TemplateLimits {
  int64_t steps_max = 10'000'000;  // evaluated nodes
  int64_t output_bytes_max = 16 << 20;
  int64_t value_bytes_max = 64 << 20;  // memory of strings and lists made on the way
  int depth_max = 100;                 // macro calls, nested expressions and blocks
};

struct TemplateInput {
  std::string messages_json;  // an array of objects with role and content, as chat APIs have it
  std::string tools_json;     // an array, or empty for none
  std::string extra_json;     // an object of further variables, or empty
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
