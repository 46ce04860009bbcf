// What an output line holds: an answer or an error, in the form of the line that asked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "assay/context.h"
#include "assay/generate.h"
#include "batch/line.h"

namespace assay::batch {

struct AnswerFacts {
  const Model* model = nullptr;
  int64_t created_unix = 0;
};

// With the line's end.
std::string answer_line(const Line& line, const Generation& generation, const AnswerFacts& facts);
std::string error_line(const Line& line, std::string_view problem);

}  // namespace assay::batch
