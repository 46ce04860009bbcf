// One line of a batch file: a request in our own form or in OpenAI's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/generate.h"
#include "assay/session.h"

namespace assay::batch {

struct Line {
  int64_t number = 0;       // from 1
  bool is_openai = false;   // custom_id and body
  std::string id_json;      // the id as JSON: a string or a whole number; of a line without one its number
  std::string key() const;  // what tells lines apart in an output

  // What is asked for; nothing of it where `problem` says what is wrong.
  std::string problem;
  std::optional<std::string> prompt;  // this, or messages
  std::vector<Message> messages;
  GenerateOptions options;  // the defaults, and over them what the line says
};

// Never throws for what the text holds.
Line parse_line(std::string_view text, int64_t number, const GenerateOptions& defaults);

}  // namespace assay::batch
