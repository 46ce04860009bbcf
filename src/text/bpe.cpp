// A word of n bytes takes O(n log n): the pairs wait in a heap, and one that no longer stands is dropped when it comes up.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>

#include <fmt/format.h>

#include "assay/error.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace assay::text {

MergeTable::MergeTable(std::span<const std::string_view> merges, const Vocabulary& vocabulary) {
  if (merges.size() > kMergesMax) {
    throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.merges: {} merges, the limit is {}", merges.size(), kMergesMax));
  }
  const size_t n_slots = std::bit_ceil(2 * merges.size() + 2);
  slots_.resize(n_slots);
  shift_ = 64 - std::countr_zero(n_slots);
  merges_.reserve(merges.size());
  size_t probes_left = 64 * merges.size() + 4096;
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t blank = merge.find(' ', 1);
    if (blank == std::string_view::npos || blank + 1 == merge.size()) {
      throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.merges: entry {} is not two texts with a blank between", rank));
    }
    joined.assign(merge, 0, blank).append(merge, blank + 1);
    const Merge made{vocabulary.find_id(merge.substr(0, blank)), vocabulary.find_id(merge.substr(blank + 1)),
                     vocabulary.find_id(joined)};
    if (made.left < 0 || made.right < 0 || made.result < 0) {
      throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.merges: entry {} has a text that is no token", rank));
    }
    merges_.push_back(made);
    const uint64_t pair = pair_of(made.left, made.right);
    size_t i = slot_of(pair);
    while (slots_[i].rank_plus_1 != 0 && slots_[i].pair != pair) {
      i = (i + 1) & (n_slots - 1);
      if (--probes_left == 0) throw Error(Errc::bad_file, "the merges are made to collide in a hash table");
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
  std::vector<uint64_t> heap;  // rank << 32 | index of the left symbol, least first
};

BpeEncoder::BpeEncoder(const Vocabulary& vocabulary, std::span<const std::string_view> merges, const PreTokenizerRules& rules)
    : vocabulary_(vocabulary), merges_(merges, vocabulary), splitter_(rules), ignores_merges_(rules.ignores_merges) {
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
  auto& heap = work.heap;
  symbols.clear();
  heap.clear();
  for (const char byte : word) {
    const TokenId id = byte_token_[static_cast<uint8_t>(byte)];
    const auto i = static_cast<int32_t>(symbols.size());
    if (id >= 0) symbols.push_back({id, i - 1, i + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  const auto candidate = [&](int32_t left) -> int64_t {  // the heap's entry for the pair at left, -1 if it does not merge
    if (left < 0 || symbols[left].next < 0) return -1;
    const int64_t rank = merges_.find_rank(symbols[left].id, symbols[symbols[left].next].id);
    return rank < 0 ? -1 : (rank << 32) | left;
  };
  const auto push = [&](int32_t left) {
    const int64_t entry = candidate(left);
    if (entry < 0) return;
    heap.push_back(static_cast<uint64_t>(entry));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) {
    if (const int64_t entry = candidate(i); entry >= 0) heap.push_back(static_cast<uint64_t>(entry));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto i = static_cast<int32_t>(top & 0xFFFFFFFFu);
    const MergeTable::Merge& merge = merges_[static_cast<uint32_t>(top >> 32)];
    auto& left = symbols[i];
    if (left.id != merge.left || left.next < 0 || symbols[left.next].id != merge.right) continue;
    auto& right = symbols[left.next];
    left.id = merge.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = i;
    push(left.previous);
    push(i);
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
