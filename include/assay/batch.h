// Many prompts at once: lines of JSON in, lines of JSON out. The answers share every pass over the weights, and each
// has the bits that it has alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "assay/chat.h"
#include "assay/generate.h"
#include "assay/reasoning.h"
#include "assay/scheduler.h"

namespace assay {

struct BatchOptions {
  GenerateOptions defaults;                           // what a line does not say
  std::shared_ptr<const ChatTemplate> chat_template;  // null: prompts are raw text, and messages are refused
  std::optional<std::string> system;        // before a line's prompt, and before messages that begin with no other
  std::string variables_json;               // an object of further variables of the template; empty: none
  std::optional<ReasoningMarks> reasoning;  // parts answers; none: an answer is one text
  int64_t n_reasoning_max = -1;             // tokens of a block of reasoning; < 0: no limit
  int64_t created_unix = 0;                 // what answers of OpenAI's form give as `created`
  std::set<std::string> done;               // keys of lines that have their answer already (BatchOutput)
};

struct BatchCounts {
  int64_t n_lines = 0;    // that are not empty
  int64_t n_skipped = 0;  // of these, had their answer already
  int64_t n_failed = 0;   // of these, have an error in place of an answer
  int64_t n_prompt_tokens = 0;
  int64_t n_answer_tokens = 0;
  bool cancelled = false;
};

// Reads lines until `next` says false, and writes one line (with its end) for each that is neither empty nor done, in
// their order, as soon as it and those before it are whole. What is wrong with a line is said in its place;
// docs/batch.md has the fields. Error for what ends it all, as a broken model. `cancelled` is polled before every pass;
// answers that are unfinished then are not written. Nobody else may step the scheduler meanwhile.
using LineSource = std::function<bool(std::string&)>;
using LineSink = std::function<void(std::string_view)>;
BatchCounts run_batch(Scheduler& scheduler, const BatchOptions& options, const LineSource& next, const LineSink& write,
                      const std::function<bool()>& cancelled = {});

// How many requests run together where nothing else is asked for.
inline constexpr int kBatchParallel = 32;

// What an output that may have ended early holds. Error(bad_request) for a line that is none of run_batch's, with its
// number.
struct BatchOutput {
  std::set<std::string> keys;  // of the lines that it answers
  int64_t n_failed = 0;        // of these, with an error
  int64_t n_bytes_whole = 0;   // what comes after is a line that was cut
};
BatchOutput read_batch_output(std::string_view text);

}  // namespace assay
