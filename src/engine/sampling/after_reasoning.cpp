// See after_reasoning.h. Where the block ends is told by the text, as the reader of the answer tells it: a mark that is
// one token may also be spelled by several, and of some vocabularies has to be.
#include "engine/sampling/after_reasoning.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace assay::engine {
namespace {

// How much of a mark's beginning a text ends with (Knuth, Morris, Pratt).
class MarkEnd {
 public:
  explicit MarkEnd(std::string mark) : mark_(std::move(mark)), shorter_(mark_.size() + 1) {
    for (size_t i = 1; i < mark_.size(); ++i) shorter_[i + 1] = behind(shorter_[i], mark_[i]);
  }
  size_t size() const noexcept { return mark_.size(); }

  // From n bytes of it on; where it is whole before the text's end, nothing.
  std::optional<size_t> behind(size_t n, std::string_view text) const {
    for (const char c : text) {
      if (n == mark_.size()) return std::nullopt;
      n = behind(n, c);
    }
    return n;
  }

 private:
  size_t behind(size_t n, char c) const {
    while (n > 0 && mark_[n] != c) n = shorter_[n];
    return mark_[n] == c ? n + 1 : 0;
  }

  std::string mark_;
  std::vector<size_t> shorter_;  // [n]: the next shorter beginning that n bytes of it end with
};

// A block that is left free, up to its budget, and another mask for what comes after it.
class AfterReasoning {
 public:
  AfterReasoning(std::shared_ptr<const Tokenizer> tokenizer, const ReasoningMarks& marks, bool is_open, int64_t n_max,
                 TokenMask rest, std::shared_ptr<const TokensWithMore> with_more)
      : tokenizer_(std::move(tokenizer)), end_(marks.close), closing_(ids_of(marks.close)), n_max_(n_max),
        rest_(std::move(rest)), with_more_(std::move(with_more)) {
    const std::vector<TokenId> open = ids_of(marks.open);
    if (open.size() == 1) open_ = open[0];
    place_ = is_open ? Place::inside : open_ && n_max != 0 ? Place::before : Place::after;
  }

  std::span<const uint64_t> allowed(std::span<const TokenId> answer) {
    for (; n_seen_ < answer.size() && place_ != Place::after; ++n_seen_) see(answer[n_seen_]);
    if (place_ == Place::after) return rest_(answer.subspan(n_before_));
    if (place_ == Place::before) {
      const auto words = rest_({});
      if (words.empty()) return {};
      words_.assign(words.begin(), words.end());
      set(*open_, true);
      return words_;
    }
    const size_t n_words = (static_cast<size_t>(tokenizer_->vocab_size()) + 63) / 64;
    if (is_over()) {
      words_.assign(n_words, 0);
      set(closing_[n_closed_], true);
      return words_;
    }
    words_.assign(n_words, ~uint64_t{0});
    for (const TokenId id : tokenizer_->end_of_generation()) set(id, false);  // an answer is still to come
    // What stands behind the mark is held from its first byte on, so a token that has both cannot come.
    for (const auto& [id, text] : *with_more_) {
      if (!end_.behind(n_of_end_, text)) set(id, false);
    }
    if (closing_.size() == 1) set(closing_[0], true);  // also where it ends an answer elsewhere
    return words_;
  }

 private:
  enum class Place { before, inside, after };

  std::vector<TokenId> ids_of(const std::string& text) const {
    return tokenizer_->encode(text, {.parse_special = true, .add_bos = false, .add_eos = false});
  }
  bool is_over() const { return n_max_ >= 0 && n_inside_ >= n_max_; }

  void see(TokenId id) {
    if (place_ == Place::before) {
      place_ = id == open_ ? Place::inside : Place::after;
      return;
    }
    if (is_over()) n_closed_ = std::min(n_closed_ + 1, closing_.size() - 1);
    n_of_end_ = end_.behind(n_of_end_, tokenizer_->piece(id)).value_or(0);
    if (n_of_end_ == end_.size()) {
      place_ = Place::after;
      n_before_ = n_seen_ + 1;
    } else {
      ++n_inside_;
    }
  }

  void set(TokenId id, bool on) {
    const auto i = static_cast<size_t>(id);
    words_[i / 64] = (words_[i / 64] & ~(uint64_t{1} << (i % 64))) | uint64_t{on ? 1u : 0u} << (i % 64);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  const MarkEnd end_;
  const std::vector<TokenId> closing_;
  std::optional<TokenId> open_;
  int64_t n_max_, n_inside_ = 0;
  TokenMask rest_;
  std::shared_ptr<const TokensWithMore> with_more_;
  Place place_ = Place::after;
  size_t n_seen_ = 0, n_before_ = 0, n_of_end_ = 0, n_closed_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace

std::shared_ptr<const TokensWithMore> tokens_with_more(const Tokenizer& tokenizer, const ReasoningMarks& marks) {
  auto tokens = std::make_shared<TokensWithMore>();
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string text = tokenizer.piece(id);
    const size_t at = text.find(marks.close.back());
    if (at != std::string::npos && at + 1 < text.size()) tokens->emplace_back(id, std::move(text));
  }
  return tokens;
}

TokenMask after_reasoning(std::shared_ptr<const Tokenizer> tokenizer, const ReasoningMarks& marks, bool is_open,
                          int64_t n_max, TokenMask rest, std::shared_ptr<const TokensWithMore> with_more) {
  auto mask = std::make_shared<AfterReasoning>(std::move(tokenizer), marks, is_open, n_max, std::move(rest),
                                               std::move(with_more));
  return [mask](std::span<const TokenId> answer) { return mask->allowed(answer); };
}

}  // namespace assay::engine
