// See assay/reasoning.h.
#include "assay/reasoning.h"

#include <algorithm>
#include <utility>

#include "engine/sampling/after_reasoning.h"

namespace assay {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

struct KnownMarks {
  std::string_view open, close;
};
constexpr KnownMarks kKnown[] = {
    {"<think>", "</think>"},  // DeepSeek R1, Qwen 3, SmolLM 3 and most others
    {"<thinking>", "</thinking>"},
    {"<reasoning>", "</reasoning>"},
    {"<seed:think>", "</seed:think>"},           // Seed-OSS
    {"[THINK]", "[/THINK]"},                     // Magistral
    {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command R7B, Command A
};

// The length of the longest end of `text` with which `mark` begins, but not all of it.
size_t begun(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

size_t first_of_text(std::string_view text) { return std::min(text.find_first_not_of(kBlanks), text.size()); }
size_t end_of_text(std::string_view text) { return text.find_last_not_of(kBlanks) + 1; }  // 0 where there is none

}  // namespace

std::optional<ReasoningMarks> find_reasoning_marks(const Model& model, std::string_view template_text) {
  const auto known = [&](const KnownMarks& marks) {
    return ReasoningMarks{std::string(marks.open), std::string(marks.close),
                          template_text.find("reasoning_content") != std::string_view::npos};
  };
  for (const KnownMarks& marks : kKnown) {
    for (const std::string_view mark : {marks.open, marks.close}) {
      if (template_text.find(mark) != std::string_view::npos) return known(marks);
    }
  }
  if (!model.tokenizer()) return std::nullopt;
  for (const KnownMarks& marks : kKnown) {
    if (model.tokenizer()->find(marks.open) && model.tokenizer()->find(marks.close)) return known(marks);
  }
  return std::nullopt;
}

void show_marks(const Tokenizer& tokenizer, const ReasoningMarks& marks, GenerateOptions& options) {
  for (const std::string& mark : {marks.open, marks.close}) {
    const std::optional<TokenId> id = tokenizer.find(mark);
    if (id && !options.special && tokenizer.kind(*id) == TokenKind::control) options.visible.push_back(*id);
  }
}

bool opens_reasoning(const Tokenizer& tokenizer, const ReasoningMarks& marks, std::span<const TokenId> prompt) {
  constexpr size_t kTail = 64;  // tokens that hold the mark and the line breaks after it
  std::string text;
  for (const TokenId id : prompt.last(std::min(prompt.size(), kTail))) tokenizer.append_piece(id, text);
  return std::string_view(text).substr(0, end_of_text(text)).ends_with(marks.open);
}

ReasoningSplitter::ReasoningSplitter(ReasoningMarks marks, bool is_open)
    : marks_(std::move(marks)), place_(is_open ? Place::inside : Place::before) {}

ReasoningSplitter::Part ReasoningSplitter::push(std::string_view piece) {
  held_ += piece;
  Part part;
  take(part);
  return part;
}

void ReasoningSplitter::take(Part& part) {
  if (place_ == Place::before) {
    const std::string_view rest = std::string_view(held_).substr(first_of_text(held_));
    if (rest.starts_with(marks_.open)) {
      held_.erase(0, held_.size() - rest.size() + marks_.open.size());
      place_ = Place::inside;
    } else if (std::string_view(marks_.open).starts_with(rest)) {
      return;  // may become the mark
    } else {
      place_ = Place::after;
      at_beginning_ = false;  // there was no block: nothing is dropped
    }
  }
  if (place_ == Place::inside) {
    if (at_beginning_) held_.erase(0, first_of_text(held_));
    if (!held_.empty()) at_beginning_ = false;
    const size_t close = held_.find(marks_.close);
    if (close == std::string::npos) {  // what may become the mark stays, and blanks before it
      const size_t n_sure = held_.size() - begun(held_, marks_.close);
      const size_t n = end_of_text(std::string_view(held_).substr(0, n_sure));
      part.reasoning.append(held_, 0, n);
      held_.erase(0, n);
      return;
    }
    part.reasoning.append(held_, 0, end_of_text(std::string_view(held_).substr(0, close)));
    held_.erase(0, close + marks_.close.size());
    place_ = Place::after;
    at_beginning_ = true;
  }
  if (at_beginning_) held_.erase(0, first_of_text(held_));
  if (held_.empty()) return;
  at_beginning_ = false;
  part.text += std::exchange(held_, {});
}

ReasoningSplitter::Part ReasoningSplitter::finish() {
  Part part;
  std::string& rest = place_ == Place::inside ? part.reasoning : part.text;
  rest = std::exchange(held_, {});
  if (place_ == Place::inside) rest.resize(end_of_text(rest));
  return part;
}

ReasoningSplitter::Part split_reasoning(const ReasoningMarks& marks, bool is_open, std::string_view text) {
  ReasoningSplitter splitter(marks, is_open);
  ReasoningSplitter::Part all = splitter.push(text);
  const ReasoningSplitter::Part rest = splitter.finish();
  all.reasoning += rest.reasoning;
  all.text += rest.text;
  return all;
}

namespace {

// What has been drawn of a block, and the mask that ends it.
class Budget {
 public:
  Budget(std::shared_ptr<const Tokenizer> tokenizer, const ReasoningMarks& marks, bool is_open, int64_t n_max)
      : tokenizer_(std::move(tokenizer)), splitter_(marks, is_open), n_max_(n_max),
        closing_(tokenizer_->encode(marks.close, {.parse_special = true, .add_bos = false, .add_eos = false})),
        words_((static_cast<size_t>(tokenizer_->vocab_size()) + 63) / 64) {}

  std::span<const uint64_t> allowed(std::span<const TokenId> answer) {
    for (; n_seen_ < answer.size(); ++n_seen_) {
      n_inside_ += splitter_.is_open() ? 1 : 0;
      splitter_.push(tokenizer_->piece(answer[n_seen_]));
    }
    if (!splitter_.is_open() || n_inside_ < n_max_) return {};
    std::fill(words_.begin(), words_.end(), 0);
    const auto id = static_cast<size_t>(closing_[n_closed_]);
    n_closed_ = std::min(n_closed_ + 1, closing_.size() - 1);
    words_[id / 64] |= uint64_t{1} << (id % 64);
    return words_;
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  ReasoningSplitter splitter_;
  int64_t n_max_;
  std::vector<TokenId> closing_;
  std::vector<uint64_t> words_;
  size_t n_seen_ = 0, n_closed_ = 0;
  int64_t n_inside_ = 0;
};

}  // namespace

TokenMask reasoning_budget(std::shared_ptr<const Tokenizer> tokenizer, const ReasoningMarks& marks, bool is_open,
                           int64_t n_max) {
  auto budget = std::make_shared<Budget>(std::move(tokenizer), marks, is_open, n_max);
  return [budget](std::span<const TokenId> answer) { return budget->allowed(answer); };
}

Generation run_parted(Scheduler& scheduler, Request request, const ReasoningOptions& reasoning,
                      const Generator::TextSink& sink, const std::function<bool()>& cancelled) {
  const auto& tokenizer = scheduler.context().model().tokenizer();
  if (!reasoning.marks || !tokenizer) return run_request(scheduler, std::move(request), sink, cancelled);
  const bool is_open = opens_reasoning(*tokenizer, *reasoning.marks, request.prompt);
  GenerateOptions& parted = request.generate;
  show_marks(*tokenizer, *reasoning.marks, parted);
  if (parted.mask) {
    parted.mask = engine::after_reasoning(tokenizer, *reasoning.marks, is_open, reasoning.n_max, std::move(parted.mask),
                                          engine::tokens_with_more(*tokenizer, *reasoning.marks));
  } else if (reasoning.n_max >= 0) {
    parted.mask = reasoning_budget(tokenizer, *reasoning.marks, is_open, reasoning.n_max);
  }
  ReasoningSplitter splitter(*reasoning.marks, is_open);
  ReasoningSplitter::Part all;
  const auto show = [&](const ReasoningSplitter::Part& part) {
    all.reasoning += part.reasoning;
    all.text += part.text;
    if (reasoning.sink && !part.reasoning.empty()) reasoning.sink(part.reasoning);
    if (sink && !part.text.empty()) sink(part.text);
  };
  Generation result = run_request(
      scheduler, std::move(request), [&](std::string_view text) { show(splitter.push(text)); }, cancelled);
  show(splitter.finish());
  result.text = std::move(all.text);
  result.reasoning = std::move(all.reasoning);
  return result;
}

}  // namespace assay
