// Text from ids that come one at a time: only whole characters leave.
#include "assay/error.h"
#include "assay/tokenizer.h"
#include "text/utf8.h"

namespace assay {
namespace {

// Moves from pending to the result all that can no longer change. at_end: nothing follows.
std::string take_whole(std::string& pending, bool at_end) {
  std::string out;
  size_t at = 0;
  while (at < pending.size()) {
    const text::Char c = text::char_at(pending, at);
    if (c.state == text::CharState::cut_short && !at_end) break;
    if (c.state == text::CharState::whole) {
      out.append(pending, at, c.length);
    } else {
      text::append_utf8(out, text::kReplacementChar);
    }
    at += c.length;
  }
  pending.erase(0, at);
  return out;
}

}  // namespace

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool special,
                             bool continues)
    : tokenizer_(std::move(tokenizer)),
      special_(special),
      continues_(continues),
      opens_(!continues) {}

std::string StreamDecoder::push(TokenId id) {
  pending_ += opens_ ? tokenizer_->decode({&id, 1}, special_) : tokenizer_->piece(id, special_);
  const TokenKind kind = tokenizer_->kind(id);
  if (kind == TokenKind::normal || kind == TokenKind::byte) {
    opens_ = false;
  } else if (kind == TokenKind::user_defined || special_) {
    opens_ = !continues_;
  }
  return take_whole(pending_, false);
}

std::string StreamDecoder::finish() { return take_whole(pending_, true); }

}  // namespace assay
