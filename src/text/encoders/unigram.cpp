// See unigram.h. The best ways to spell a text are kept only back to the last place that no token can cross, which in
// most texts is a word's beginning: memory is that of the longest stretch between two such places.
#include "text/encoders/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/error.h"
#include "base/utf8.h"
#include "text/encoders/spm.h"

namespace assay::text {
namespace {

constexpr double kUnknownPenalty = 10.0;
// What a text may grow to when it is normalised: NFKC makes 11 bytes of one at most. Places in it fit 32 bits.
constexpr size_t kGrowthMax = 64, kGrownBytesAlways = size_t{1} << 16, kGrownBytesMax = size_t{1} << 30;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Control, unknown and byte tokens are no text, and unused ones are never chosen.
std::vector<TokenId> pieces_of(const Vocabulary& vocabulary) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const TokenKind kind = vocabulary.kind(id);
    const bool is_piece = kind == TokenKind::normal || kind == TokenKind::user_defined;
    if (is_piece && !vocabulary.text(id).empty()) ids.push_back(id);
  }
  return ids;
}

double least_score(const Vocabulary& vocabulary) {
  double least = INFINITY;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (!std::isfinite(vocabulary.score(id))) {
      throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.scores: entry {} is {}", id, vocabulary.score(id)));
    }
    if (vocabulary.kind(id) == TokenKind::normal) least = std::min(least, double{vocabulary.score(id)});
  }
  return std::isfinite(least) ? least : 0.0;
}

}  // namespace

UnigramEncoder::UnigramEncoder(const Vocabulary& vocabulary, UnigramRules rules, std::span<const std::byte> chars_map,
                               TokenId unknown)
    : vocabulary_(vocabulary), rules_(rules), chars_map_(chars_map), trie_(vocabulary, pieces_of(vocabulary)),
      unknown_(unknown), unknown_score_(least_score(vocabulary) - kUnknownPenalty),
      byte_token_(spelled_bytes(vocabulary)) {
  for (TokenId& id : byte_token_) {
    if (id >= 0 && vocabulary.kind(id) != TokenKind::byte) id = -1;
  }
}

// The text as SentencePiece's normalizer leaves it; always UTF-8.
std::string UnigramEncoder::normalised(std::string_view text, bool opens) const {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + kSpelledBlank.size());
  const bool joins = rules_.remove_extra_whitespaces;
  const size_t limit = std::min(text.size() * kGrowthMax + kGrownBytesAlways, kGrownBytesMax);
  bool is_begin = true, after_blank = joins;
  for (size_t at = 0; at < text.size();) {
    const CharsMap::Match match = chars_map_.longest(text.substr(at));
    const base::Char character = match.bytes == 0 ? base::char_at(text, at) : base::Char{};
    const bool is_whole = character.state == base::CharState::whole;
    std::string_view part = match.bytes != 0 ? match.text : is_whole ? text.substr(at, character.length) : kReplacement;
    at += match.bytes != 0 ? match.bytes : is_whole ? character.length : 1;
    if (is_begin && joins && part == " ") continue;  // blanks before a text go, even where nothing follows them
    if (is_begin && rules_.add_space_prefix && opens) out += kSpelledBlank;
    is_begin = false;
    while (after_blank && part.starts_with(' ')) part.remove_prefix(1);
    if (!part.empty()) after_blank = joins && part.ends_with(' ');
    for (size_t blank; (blank = part.find(' ')) != std::string_view::npos; part.remove_prefix(blank + 1)) {
      out.append(part, 0, blank).append(kSpelledBlank);
    }
    out += part;
    if (out.size() > limit) {
      throw Error(Errc::bad_request, fmt::format("a text of {} bytes is more than {} when it is normalised by this "
                                                 "vocabulary's rules",
                                                 text.size(), limit));
    }
  }
  while (joins && out.ends_with(kSpelledBlank)) out.resize(out.size() - kSpelledBlank.size());
  return out;
}

// The best way to spell a text up to each place.
class UnigramEncoder::Lattice {
 public:
  Lattice(const UnigramEncoder& encoder, std::string_view text, std::vector<TokenId>& out)
      : encoder_(encoder), text_(text), out_(out), ends_(1) {}

  void run() {
    for (size_t at = 0; at < text_.size();) {
      if (at == reach_) settle(at);
      const auto character = static_cast<size_t>(base::bytes_of_lead(text_[at]));
      bool is_token = false;
      encoder_.trie_.for_each_prefix(text_.substr(at), [&](TokenId id, size_t bytes) {
        is_token = is_token || bytes == character;
        offer(at, at + bytes, id, encoder_.score_of(id));
      });
      if (!is_token) offer(at, at + character, encoder_.unknown_, encoder_.unknown_score_);
      at += character;
    }
    settle(text_.size());
  }

 private:
  struct End {
    double score = 0;
    uint32_t begin = 0;  // of the last token
    TokenId id = kNone;
  };
  static constexpr TokenId kNone = -1;

  void offer(size_t begin, size_t end, TokenId id, double score) {
    reach_ = std::max(reach_, end);
    if (ends_.size() <= end - first_) ends_.resize(end - first_ + 1);
    End& best = ends_[end - first_];
    const double sum = ends_[begin - first_].score + score;
    if (best.id == kNone || sum > best.score) best = {sum, static_cast<uint32_t>(begin), id};
  }

  // No token crosses this place: the way to it is known.
  void settle(size_t place) {
    way_.clear();
    for (size_t end = place; end > first_; end = ends_[end - first_].begin) way_.push_back(end);
    for (auto end = way_.rbegin(); end != way_.rend(); ++end) append(ends_[*end - first_], *end);
    ends_.assign(1, {});
    first_ = place;
  }

  void append(const End& last, size_t end) {
    const bool is_unknown = last.id == encoder_.unknown_;
    if (is_unknown && encoder_.append_as_bytes(text_.substr(last.begin, end - last.begin), out_)) {
      after_unknown_ = false;
      return;
    }
    if (!is_unknown || !after_unknown_) out_.push_back(last.id);
    after_unknown_ = is_unknown;
  }

  const UnigramEncoder& encoder_;
  std::string_view text_;
  std::vector<TokenId>& out_;
  std::vector<End> ends_;    // from first_ on
  std::vector<size_t> way_;  // ends of the tokens on the way back
  size_t first_ = 0, reach_ = 0;
  bool after_unknown_ = false;
};

double UnigramEncoder::score_of(TokenId id) const noexcept {
  return vocabulary_.kind(id) == TokenKind::user_defined ? 0.0 : double{vocabulary_.score(id)};
}

bool UnigramEncoder::append_as_bytes(std::string_view character, std::vector<TokenId>& out) const {
  const auto token = [&](char c) { return byte_token_[static_cast<uint8_t>(c)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return token(c) < 0; })) return false;
  for (const char c : character) out.push_back(token(c));
  return true;
}

void UnigramEncoder::encode(std::string_view raw, bool opens, std::vector<TokenId>& out) const {
  const std::string text = normalised(raw, opens);
  Lattice(*this, text, out).run();
}

void UnigramEncoder::append_bytes(TokenId id, std::string& out) const { append_spelled(vocabulary_, id, out); }

}  // namespace assay::text
