// A word of n bytes takes O(n log n): the pairs wait in a queue, and one that no longer stands is
// dropped when it comes up.
#include "text/bpe.h"

#include <fmt/format.h>

#include <bit>
#include <optional>
#include <string>

#include "assay/error.h"
#include "text/byte_alphabet.h"
#include "text/pair_queue.h"
#include "text/utf8.h"

namespace assay::text {
namespace {

// For each merge the ids of its left text, its right text and both joined; -1 where there is no
// such token.
std::vector<TokenId> resolved(std::span<const std::string_view> merges,
                              const Vocabulary& vocabulary) {
  size_t n_bytes = 0;
  for (const std::string_view merge : merges) n_bytes += merge.size();
  std::string joined;
  joined.reserve(n_bytes);  // the views below point into it
  std::vector<std::string_view> texts;
  texts.reserve(3 * merges.size());
  for (const std::string_view merge : merges) {
    const size_t blank = merge.find(' ', 1);
    if (blank == std::string_view::npos || blank + 1 == merge.size()) {
      throw Error(
          Errc::bad_file,
          fmt::format("tokenizer.ggml.merges: entry {} is not two texts with a blank between",
                      texts.size() / 3));
    }
    const size_t begin = joined.size();
    joined.append(merge, 0, blank).append(merge, blank + 1);
    texts.push_back(merge.substr(0, blank));
    texts.push_back(merge.substr(blank + 1));
    texts.push_back(std::string_view(joined).substr(begin));
  }
  std::vector<TokenId> ids(texts.size());
  vocabulary.find_ids(texts, ids);
  return ids;
}

}  // namespace

MergeTable::MergeTable(std::span<const std::string_view> merges, const Vocabulary& vocabulary) {
  if (merges.size() > kMergesMax) {
    throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.merges: {} merges, the limit is {}",
                                            merges.size(), kMergesMax));
  }
  const size_t n_slots = std::bit_ceil(2 * merges.size() + 2);
  slots_.resize(n_slots);
  shift_ = 64 - std::countr_zero(n_slots);
  const std::vector<TokenId> ids = resolved(merges, vocabulary);
  merges_.resize(merges.size());
  size_t probes_left = 64 * merges.size() + 4096;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& made = merges_[rank] = {ids[3 * rank], ids[3 * rank + 1], ids[3 * rank + 2]};
    if (made.left < 0 || made.right < 0 || made.result < 0) {
      throw Error(Errc::bad_file,
                  fmt::format("tokenizer.ggml.merges: entry {} has a text that is no token", rank));
    }
    const uint64_t pair = pair_of(made.left, made.right);
    size_t i = slot_of(pair);
    while (slots_[i].rank_plus_1 != 0 && slots_[i].pair != pair) {
      i = (i + 1) & (n_slots - 1);
      if (--probes_left == 0)
        throw Error(Errc::bad_file, "the merges are made to collide in a hash table");
    }
    if (slots_[i].rank_plus_1 == 0) slots_[i] = {pair, static_cast<uint32_t>(rank + 1)};
  }
}

int64_t MergeTable::find_rank(TokenId left, TokenId right) const noexcept {
  const uint64_t pair = pair_of(left, right);
  for (size_t i = slot_of(pair); slots_[i].rank_plus_1 != 0; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].pair == pair) return int64_t{slots_[i].rank_plus_1} - 1;
  }
  return -1;
}

// Buffers that words of one text share.
struct BpeEncoder::Work {
  struct Symbol {
    TokenId id = -1;  // -1: merged into the one before
    int32_t previous = -1;
    int32_t next = -1;
  };
  std::vector<Symbol> symbols;
  PairQueue queue;  // by rank
};

BpeEncoder::BpeEncoder(const Vocabulary& vocabulary, std::span<const std::string_view> merges,
                       const PreTokenizerRules& rules)
    : vocabulary_(vocabulary),
      merges_(merges, vocabulary),
      splitter_(rules),
      ignores_merges_(rules.ignores_merges) {
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    byte_token_[byte] = vocabulary.find_id(kByteAlphabet.spell({&one, 1}));
  }
}

void BpeEncoder::encode(std::string_view text, bool /*opens*/, std::vector<TokenId>& out) const {
  std::string repaired;
  if (!is_utf8(text)) {
    repaired = repaired_utf8(text);
    text = repaired;
  }
  Work work;
  uint32_t begin = 0;
  for (const uint32_t end : splitter_.split(text)) {
    encode_word(text.substr(begin, end - begin), work, out);
    begin = end;
  }
}

void BpeEncoder::encode_word(std::string_view word, Work& work, std::vector<TokenId>& out) const {
  if (ignores_merges_ && word.size() <= vocabulary_.token_bytes_max()) {
    const TokenId whole = vocabulary_.find_id(kByteAlphabet.spell(word));
    if (whole >= 0 && vocabulary_.kind(whole) != TokenKind::control) {
      out.push_back(whole);
      return;
    }
  }
  auto& symbols = work.symbols;
  auto& queue = work.queue;
  symbols.clear();
  queue.clear();
  for (const char byte : word) {
    const TokenId id = byte_token_[static_cast<uint8_t>(byte)];
    const auto i = static_cast<int32_t>(symbols.size());
    if (id >= 0) symbols.push_back({id, i - 1, i + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  const auto key_at =
      [&](int32_t left) -> std::optional<uint64_t> {  // nullopt: the pair at left does not merge
    if (left < 0 || symbols[left].next < 0) return std::nullopt;
    const int64_t rank = merges_.find_rank(symbols[left].id, symbols[symbols[left].next].id);
    if (rank < 0) return std::nullopt;
    return (static_cast<uint64_t>(rank) << 32) | static_cast<uint32_t>(left);
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) {
    if (const auto key = key_at(i)) queue.add(*key);
  }
  queue.sort_in();
  while (!queue.empty()) {
    const uint64_t key = queue.pop();
    const auto i = static_cast<int32_t>(key & 0xFFFFFFFFu);
    const MergeTable::Merge& merge = merges_[static_cast<uint32_t>(key >> 32)];
    auto& left = symbols[i];
    if (left.id != merge.left || left.next < 0 || symbols[left.next].id != merge.right) continue;
    auto& right = symbols[left.next];
    left.id = merge.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = i;
    for (const int32_t changed : {left.previous, i}) {
      if (const auto pair = key_at(changed)) queue.push(*pair);
    }
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
}

void BpeEncoder::append_bytes(TokenId id, std::string& out) const {
  const std::string_view text = vocabulary_.text(id);
  const size_t before = out.size();
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    const auto byte = kByteAlphabet.byte(c.code);
    if (!byte) {  // a text that is not spelled in the alphabet stands for itself
      out.resize(before);
      out += text;
      return;
    }
    out.push_back(static_cast<char>(*byte));
    at += c.length;
  }
}

}  // namespace assay::text
