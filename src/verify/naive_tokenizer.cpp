// See naive_tokenizer.h.
#include "verify/naive_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "base/utf8.h"
#include "text/pre_tokenizers.h"

namespace assay::verify {
namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581

// GPT-2's letters for bytes: printable ones of Latin-1 stand for themselves, the others for U+0100
// and on, in order.
std::string letter_of(uint8_t wanted) {
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const uint32_t code = prints ? byte : next++;
    if (byte != wanted) continue;
    std::string letter;
    base::append_utf8(letter, code);
    return letter;
  }
  return {};
}

std::vector<std::string> letters_of_all_bytes() {
  std::vector<std::string> letters;
  for (int byte = 0; byte < 256; ++byte) letters.push_back(letter_of(static_cast<uint8_t>(byte)));
  return letters;
}

const std::string& letter(char byte) {
  static const std::vector<std::string> kLetters = letters_of_all_bytes();
  return kLetters[static_cast<uint8_t>(byte)];
}

size_t character_bytes(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

std::optional<TokenId> find_id(const gguf::Metadata& metadata, std::string_view name) {
  const auto id = metadata.find_integer(fmt::format("tokenizer.ggml.{}_token_id", name));
  return id ? std::optional<TokenId>(static_cast<TokenId>(*id)) : std::nullopt;
}

}  // namespace

NaiveTokenizer::NaiveTokenizer(const gguf::Metadata& metadata, const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {
  const std::string_view model = metadata.require_string("tokenizer.ggml.model");
  is_bpe_ = model == "gpt2" || model == "gemma4";
  const std::vector<std::string_view> tokens = metadata.require_strings("tokenizer.ggml.tokens");
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (tokens[i].empty()) continue;
    ids_.emplace(tokens[i], id);
    writes_blanks_ = writes_blanks_ || tokens[i] == kBlank;
    const TokenKind kind = tokenizer.kind(id);
    if (kind == TokenKind::user_defined) specials_.push_back({tokens[i], id, true});
    if (kind == TokenKind::control || kind == TokenKind::unknown) specials_.push_back({tokens[i], id, false});
  }
  bos_ = tokenizer.bos();
  eos_ = tokenizer.eos();
  unknown_ = find_id(metadata, "unknown");
  if (!unknown_ && !is_bpe_) unknown_ = 0;  // as Llama's files mean it
  if (model == "t5") {
    unigram_ = std::make_unique<const NaiveUnigram>(metadata, tokenizer);
    unknown_ = unigram_->unknown();
    adds_bos_ = false;
    adds_eos_ = eos_.has_value();
  }
  if (is_bpe_) {
    const std::vector<std::string_view> merges =
        metadata.find_strings("tokenizer.ggml.merges").value_or(std::vector<std::string_view>{});
    for (size_t rank = 0; rank < merges.size(); ++rank) ranks_.emplace(std::string(merges[rank]), rank);
    adds_space_ = false;
    adds_bos_ = bos_.has_value();
  }
  if (model == "gpt2") {
    const auto rules = text::find_pre_tokenizer(metadata.require_string("tokenizer.ggml.pre"));
    if (!rules) throw Error(Errc::unsupported, "tokenizer.ggml.pre: not one of those served");
    splitter_ = std::make_unique<const text::Splitter>(*rules);
    ignores_merges_ = rules->ignores_merges;
    adds_bos_ = rules->adds_bos && bos_.has_value();
  } else if (!is_bpe_ && !unigram_) {
    scores_ = metadata.find_floats("tokenizer.ggml.scores").value_or(std::vector<float>(tokens.size(), 0.0f));
    adds_space_ = metadata.find_bool("tokenizer.ggml.add_space_prefix").value_or(true);
    joins_blanks_ = metadata.find_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
    adds_bos_ = bos_.has_value();
  }
  adds_bos_ =
      metadata.find_bool("tokenizer.ggml.add_bos_token").value_or(adds_bos_) || (model == "gemma4" && bos_.has_value());
  adds_eos_ = metadata.find_bool("tokenizer.ggml.add_eos_token").value_or(adds_eos_);
}

// Of all pairs of neighbours the strongest, leftmost first, is joined until none can be.
std::vector<std::string> NaiveTokenizer::merged(std::vector<std::string> parts) const {
  while (parts.size() > 1) {
    size_t best = parts.size();
    size_t best_rank = 0;
    float best_score = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      if (is_bpe_) {
        const auto rank = ranks_.find(parts[i] + " " + parts[i + 1]);
        if (rank == ranks_.end() || (best < parts.size() && rank->second >= best_rank)) continue;
        best = i;
        best_rank = rank->second;
      } else {
        const auto id = ids_.find(parts[i] + parts[i + 1]);
        if (id == ids_.end()) continue;
        const TokenKind kind = tokenizer_->kind(id->second);
        if (kind == TokenKind::control || kind == TokenKind::unknown || kind == TokenKind::byte) continue;
        const float score = scores_[static_cast<size_t>(id->second)];
        if (best < parts.size() && score <= best_score) continue;
        best = i;
        best_score = score;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  return parts;
}

void NaiveTokenizer::encode_words(std::string_view raw, std::vector<TokenId>& out) const {
  const std::string text = base::is_utf8(raw) ? std::string(raw) : base::repaired_utf8(raw);
  size_t begin = 0;
  for (const uint32_t end : splitter_->split(text)) {
    std::vector<std::string> parts;
    std::string whole;
    for (; begin < end; ++begin) {
      whole += letter(text[begin]);
      if (ids_.contains(letter(text[begin]))) parts.push_back(letter(text[begin]));  // a byte without a token vanishes
    }
    const auto known = ids_.find(whole);
    if (ignores_merges_ && known != ids_.end() && tokenizer_->kind(known->second) != TokenKind::control) {
      out.push_back(known->second);
      continue;
    }
    for (const std::string& part : merged(std::move(parts))) out.push_back(ids_.at(part));
  }
}

void NaiveTokenizer::append_part(const std::string& part, std::vector<TokenId>& out) const {
  const auto known = ids_.find(part);
  if (known != ids_.end()) {
    const TokenKind kind = tokenizer_->kind(known->second);
    if (kind != TokenKind::control && kind != TokenKind::unknown && kind != TokenKind::byte)
      return out.push_back(known->second);
  }
  std::vector<TokenId> bytes;
  for (const char c : part) {
    const auto byte = ids_.find(fmt::format("<0x{:02X}>", static_cast<uint8_t>(c)));
    const auto plain = ids_.find(std::string_view(&c, 1));
    if (byte != ids_.end()) {
      bytes.push_back(byte->second);
    } else if (plain != ids_.end()) {
      bytes.push_back(plain->second);
    } else {
      if (unknown_) out.push_back(*unknown_);
      return;
    }
  }
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void NaiveTokenizer::encode_pieces(std::string_view raw, bool opens, std::vector<TokenId>& out) const {
  std::string plain(is_bpe_ && !base::is_utf8(raw) ? base::repaired_utf8(raw) : raw);
  if (joins_blanks_) {
    const auto both_blank = [](char a, char b) { return a == ' ' && b == ' '; };
    plain.erase(std::unique(plain.begin(), plain.end(), both_blank), plain.end());
    const size_t first = plain.find_first_not_of(' ');
    if (first != std::string::npos) plain = plain.substr(first, plain.find_last_not_of(' ') + 1 - first);
  }
  std::string text = adds_space_ && opens ? std::string(kBlank) : std::string();
  for (const char c : plain) {
    if (c == ' ') {
      text += kBlank;
    } else {
      text += c;
    }
  }
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size(); at += parts.back().size())
    parts.push_back(text.substr(at, character_bytes(text[at])));
  for (const std::string& part : merged(std::move(parts))) append_part(part, out);
}

const NaiveTokenizer::Special* NaiveTokenizer::special_at(std::string_view text, size_t at,
                                                          const std::vector<bool>& parsed) const {
  const Special* longest = nullptr;
  for (const Special& special : specials_) {
    if (!text.substr(at).starts_with(special.text) ||
        (longest != nullptr && longest->text.size() >= special.text.size()))
      continue;
    bool allowed = true;
    for (size_t i = at; !special.anywhere && i < at + special.text.size(); ++i) allowed = allowed && parsed[i];
    if (allowed) longest = &special;
  }
  return longest;
}

std::vector<TokenId> NaiveTokenizer::encode(std::span<const TextPiece> pieces, std::optional<bool> add_bos) const {
  std::string text;
  std::vector<bool> parsed;  // by byte
  for (const TextPiece& piece : pieces) {
    text += piece.text;
    parsed.resize(text.size(), piece.parse_special);
  }
  std::vector<TokenId> out;
  if (add_bos.value_or(adds_bos_) && bos_) out.push_back(*bos_);
  bool opens = true;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (end == begin) return;
    const std::string_view between = std::string_view(text).substr(begin, end - begin);
    if (unigram_) {
      unigram_->encode(between, out);
    } else {
      splitter_ ? encode_words(between, out) : encode_pieces(between, opens, out);
    }
    opens = false;
  };
  for (size_t at = 0; at < text.size();) {
    const Special* special = special_at(text, at, parsed);
    if (special == nullptr) {
      ++at;
      continue;
    }
    flush(at);
    out.push_back(special->id);
    at += special->text.size();
    begin = at;
    opens = true;
  }
  flush(text.size());
  return out;
}

std::vector<TokenId> NaiveTokenizer::encode(std::string_view text, bool parse_special,
                                            std::optional<bool> add_bos) const {
  const TextPiece piece{std::string(text), parse_special};
  return encode({&piece, 1}, add_bos);
}

// A normalised text comes back with its marks as blanks, less the one that was put before it.
std::string NaiveTokenizer::comes_back(std::string_view text) const {
  std::string plain = unigram_->normalised(text);
  for (size_t at = 0; (at = plain.find(kBlank, at)) != std::string::npos;) plain.replace(at, kBlank.size(), " ");
  if (unigram_->adds_space() && plain.starts_with(' ')) plain.erase(0, 1);
  return plain;
}

std::optional<std::string> NaiveTokenizer::round_trip(std::string_view text) const {
  if (!splitter_) {
    const std::vector<TokenId> ids = encode(text, false, false);
    const bool has_unknown = unknown_ && std::find(ids.begin(), ids.end(), *unknown_) != ids.end();
    const bool has_own = std::any_of(ids.begin(), ids.end(),
                                     [&](TokenId id) { return tokenizer_->kind(id) == TokenKind::user_defined; });
    if (unigram_ && !has_unknown && !has_own) return comes_back(text);
    if (has_unknown || joins_blanks_ || !writes_blanks_) return std::nullopt;
    return is_bpe_ && !base::is_utf8(text) ? base::repaired_utf8(text) : std::string(text);
  }
  std::string expected;
  for (const char c : base::is_utf8(text) ? std::string(text) : base::repaired_utf8(text)) {
    if (ids_.contains(letter(c))) expected += c;
  }
  return expected;
}

}  // namespace assay::verify
