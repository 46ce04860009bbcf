// Text from ids that come one at a time: only whole characters leave.
#include "assay/error.h"
#include "assay/tokenizer.h"
#include "base/utf8.h"

namespace assay {
namespace {

// Moves from pending to the end of out all that can no longer change. at_end: nothing follows.
void take_whole(std::string& pending, bool at_end, std::string& out) {
  size_t at = 0;
  while (at < pending.size()) {
    const base::Char c = base::char_at(pending, at);
    if (c.state == base::CharState::cut_short && !at_end) break;
    if (c.state == base::CharState::whole) {
      out.append(pending, at, c.length);
    } else {
      base::append_utf8(out, base::kReplacementChar);
    }
    at += c.length;
  }
  pending.erase(0, at);
}

}  // namespace

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool special, bool continues)
    : tokenizer_(std::move(tokenizer)), special_(special), continues_(continues), opens_(!continues) {}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  push(id, out);
  return out;
}

void StreamDecoder::push(TokenId id, std::string& out) {
  if (opens_) {
    pending_ += tokenizer_->decode({&id, 1}, special_);
  } else {
    tokenizer_->append_piece(id, pending_, special_);
  }
  const TokenKind kind = tokenizer_->kind(id);
  if (kind == TokenKind::normal || kind == TokenKind::byte) {
    opens_ = false;
  } else if (kind == TokenKind::user_defined || special_) {
    opens_ = !continues_;
  }
  take_whole(pending_, false, out);
}

std::string StreamDecoder::finish() {
  std::string out;
  take_whole(pending_, true, out);
  return out;
}

}  // namespace assay
