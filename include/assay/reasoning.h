// Blocks in which a model thinks aloud before it answers, as `<think>...</think>`: which marks a model uses, and an
// answer parted by them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/generate.h"
#include "assay/model.h"
#include "assay/scheduler.h"

namespace assay {

struct ReasoningMarks {
  std::string open, close;
  bool template_takes_it = false;  // the template has a place of its own for it: a message's reasoning_content
};

// Those that the template's text names, else those that are tokens of the vocabulary; nothing where the model knows
// none.
std::optional<ReasoningMarks> find_reasoning_marks(const Model& model, std::string_view template_text);

// Makes the marks appear in the text where the vocabulary has them as control tokens.
void show_marks(const Tokenizer& tokenizer, const ReasoningMarks& marks, GenerateOptions& options);

// Whether a prompt ends inside a block, as where a template opens one.
bool opens_reasoning(const Tokenizer& tokenizer, const ReasoningMarks& marks, std::span<const TokenId> prompt);

// Parts a stream of text, however it is cut into pieces. A block begins an answer, or none does: the mark has effect
// before any other text but blanks. The marks belong to neither part, nor do blanks and line breaks around them.
class ReasoningSplitter {  // one thread at a time
 public:
  // is_open: the prompt opened the block, so the answer begins inside it.
  ReasoningSplitter(ReasoningMarks marks, bool is_open);

  struct Part {
    std::string reasoning, text;
  };
  Part push(std::string_view piece);  // what is certain now
  Part finish();                      // what is left
  bool is_open() const noexcept { return place_ == Place::inside; }

 private:
  enum class Place { before, inside, after };
  void take(Part& part);

  ReasoningMarks marks_;
  Place place_;
  bool at_beginning_ = true;  // of the part: blanks are dropped
  std::string held_;          // may become a mark, or blanks before one
};

// The whole of it.
ReasoningSplitter::Part split_reasoning(const ReasoningMarks& marks, bool is_open, std::string_view text);

// Ends a block after n_max tokens: from then on only the closing mark may come. 0: a block is closed as soon as it is
// open.
TokenMask reasoning_budget(std::shared_ptr<const Tokenizer> tokenizer, const ReasoningMarks& marks, bool is_open,
                           int64_t n_max);

struct ReasoningOptions {
  std::optional<ReasoningMarks> marks;  // none: the answer is one text
  int64_t n_max = -1;                   // tokens of a block; < 0: no limit
  Generator::TextSink sink = {};        // gets the reasoning, as the other sink gets the text
};

// run_request (assay/scheduler.h) with the answer parted: Generation::reasoning and Generation::text.
Generation run_parted(Scheduler& scheduler, Request request, const ReasoningOptions& reasoning,
                      const Generator::TextSink& sink = {}, const std::function<bool()>& cancelled = {});

}  // namespace assay
