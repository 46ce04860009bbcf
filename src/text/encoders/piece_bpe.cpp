// See piece_bpe.h.
#include "text/encoders/piece_bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "base/utf8.h"
#include "text/encoders/spm.h"

namespace assay::text {

PieceBpeEncoder::PieceBpeEncoder(const Vocabulary& vocabulary, std::span<const std::string_view> merges,
                                 TokenId unknown, base::ThreadPool& pool)
    : vocabulary_(vocabulary), merges_(merges, vocabulary, pool), unknown_(unknown),
      byte_token_(spelled_bytes(vocabulary)) {}

void PieceBpeEncoder::encode(std::string_view text, bool /*opens*/, std::vector<TokenId>& out) const {
  std::string repaired;
  if (!base::is_utf8(text)) {
    repaired = base::repaired_utf8(text);
    text = repaired;
  }
  PairMerger merger;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = base::char_at(text, at).length;
    add_character(text[at] == ' ' ? kSpelledBlank : text.substr(at, bytes), merger);
    at += bytes;
  }
  merger.merge_into(merges_, out);
}

void PieceBpeEncoder::add_character(std::string_view character, PairMerger& merger) const {
  if (const TokenId id = find_piece(vocabulary_, character); id >= 0) return merger.add(id);
  const bool has_all = std::all_of(character.begin(), character.end(),
                                   [&](char c) { return byte_token_[static_cast<uint8_t>(c)] >= 0; });
  if (has_all) {
    for (const char c : character) merger.add(byte_token_[static_cast<uint8_t>(c)]);
    return;
  }
  if (unknown_ < 0) {
    throw Error(Errc::bad_request,
                fmt::format("the character \"{}\" has no token, and the vocabulary has no unknown token", character));
  }
  merger.add(unknown_);
}

void PieceBpeEncoder::append_bytes(TokenId id, std::string& out) const { append_spelled(vocabulary_, id, out); }

}  // namespace assay::text
