// The public Tokenizer: special tokens are taken out of the text, what lies between goes to the
// encoder of the vocabulary's kind.
#include "assay/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "assay/error.h"
#include "text/tokenizer_state.h"

namespace assay {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 28;  // every index below fits 32 bits, and so does the number of tokens

bool is_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

void encode_between(const Tokenizer::State& state, std::string_view text, std::span<const text::Region> parsed,
                    std::vector<TokenId>& out) {
  const auto strips = [](const std::vector<bool>& flags, TokenId id) { return !flags.empty() && flags[id]; };
  size_t at = 0;
  size_t i_region = 0;
  bool opens = true;
  while (at < text.size()) {
    const text::SpecialMatch special = state.specials->find(text, at, parsed, i_region);
    size_t plain_end = special.id < 0 ? text.size() : special.begin;
    if (special.id >= 0 && strips(state.strips_left, special.id)) {
      while (plain_end > at && is_blank(text[plain_end - 1])) --plain_end;
    }
    if (plain_end > at) {
      state.words->encode(text.substr(at, plain_end - at), opens, out);
      opens = false;
    }
    if (special.id < 0) return;
    out.push_back(special.id);
    opens = true;
    at = special.end;
    if (strips(state.strips_right, special.id)) {
      while (at < text.size() && is_blank(text[at])) ++at;
    }
  }
}

std::vector<TokenId> encode_text(const Tokenizer::State& state, std::string_view text,
                                 std::span<const text::Region> parsed, const EncodeOptions& options) {
  if (text.size() > kTextBytesMax) {
    throw Error(Errc::bad_request,
                fmt::format("a text of {} bytes is too long to tokenize, the limit is {}", text.size(), kTextBytesMax));
  }
  std::vector<TokenId> out;
  try {
    if (options.add_bos.value_or(state.adds_bos)) {
      if (!state.bos) throw Error(Errc::bad_request, "a BOS token was asked for, but the vocabulary has none");
      out.push_back(*state.bos);
    }
    encode_between(state, text, parsed, out);
    if (options.add_eos.value_or(state.adds_eos)) {
      if (!state.eos) throw Error(Errc::bad_request, "an EOS token was asked for, but the vocabulary has none");
      out.push_back(*state.eos);
    }
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, fmt::format("no memory to tokenize a text of {} bytes", text.size()));
  }
  return out;
}

void require_id(const Tokenizer::State& state, TokenId id) {
  if (state.vocabulary.has(id)) return;
  throw Error(Errc::bad_request,
              fmt::format("token id {} is out of range, the vocabulary has {}", id, state.vocabulary.size()));
}

// Appends what a token stands for in text. Control, unknown and unused tokens are no text: nothing,
// or as they are spelled.
void append_piece_of(const Tokenizer::State& state, TokenId id, bool special, std::string& out) {
  switch (state.vocabulary.kind(id)) {
    case TokenKind::normal:
    case TokenKind::byte: state.words->append_bytes(id, out); return;
    case TokenKind::user_defined: out += state.vocabulary.text(id); return;
    case TokenKind::unknown:
    case TokenKind::control:
    case TokenKind::unused:
      if (special) out += state.vocabulary.text(id);
      return;
  }
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const text::Region whole{0, text.size()};
  return encode_text(*state_, text, {&whole, options.parse_special ? size_t{1} : size_t{0}}, options);
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextPiece> pieces, const EncodeOptions& options) const {
  std::string text;
  std::vector<text::Region> parsed;
  for (const TextPiece& piece : pieces) {
    const size_t begin = text.size();
    text += piece.text;
    if (!piece.parse_special || piece.text.empty()) continue;
    if (!parsed.empty() && parsed.back().end == begin) {
      parsed.back().end = text.size();
    } else {
      parsed.push_back({begin, text.size()});
    }
  }
  return encode_text(*state_, text, parsed, options);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool special) const {
  std::string out;
  const bool adds_space = state_->words->adds_space();
  bool opens = adds_space;  // the blank that encode put before a text is still to come
  for (const TokenId id : ids) {
    require_id(*state_, id);
    const TokenKind kind = state_->vocabulary.kind(id);
    const size_t before = out.size();
    append_piece_of(*state_, id, special, out);
    if (kind == TokenKind::normal || kind == TokenKind::byte) {
      if (opens && out.size() > before && out[before] == ' ') out.erase(before, 1);
      opens = false;
    } else if (kind == TokenKind::user_defined || special) {
      opens = adds_space;
    }
  }
  return out;
}

std::string Tokenizer::piece(TokenId id, bool special) const {
  std::string out;
  append_piece(id, out, special);
  return out;
}

void Tokenizer::append_piece(TokenId id, std::string& out, bool special) const {
  require_id(*state_, id);
  append_piece_of(*state_, id, special, out);
}

int32_t Tokenizer::vocab_size() const noexcept { return state_->vocabulary.size(); }

std::string_view Tokenizer::text(TokenId id) const {
  require_id(*state_, id);
  return state_->vocabulary.text(id);
}

TokenKind Tokenizer::kind(TokenId id) const {
  require_id(*state_, id);
  return state_->vocabulary.kind(id);
}

std::optional<TokenId> Tokenizer::find(std::string_view token_text) const {
  return state_->vocabulary.find(token_text);
}
std::optional<TokenId> Tokenizer::bos() const noexcept { return state_->bos; }
std::optional<TokenId> Tokenizer::eos() const noexcept { return state_->eos; }
bool Tokenizer::adds_bos() const noexcept { return state_->adds_bos; }
bool Tokenizer::adds_eos() const noexcept { return state_->adds_eos; }
bool Tokenizer::is_end_of_generation(TokenId id) const noexcept {
  return std::binary_search(state_->ends.begin(), state_->ends.end(), id);
}
std::vector<TokenId> Tokenizer::end_of_generation() const { return state_->ends; }
std::string_view Tokenizer::model() const noexcept { return state_->model; }
std::string_view Tokenizer::pre_tokenizer() const noexcept { return state_->pre_tokenizer; }

}  // namespace assay
