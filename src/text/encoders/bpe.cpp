// A word of n bytes takes O(n log n): the pairs wait in a queue, and one that no longer stands is
// dropped when it comes up.
#include "text/encoders/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "assay/error.h"
#include "base/utf8.h"
#include "text/byte_alphabet.h"

namespace assay::text {
namespace {

constexpr size_t kBlock = 32;  // merges whose texts are looked up together

// The blank between the two texts of a merge; npos: it has none.
size_t blank_of(std::string_view merge) noexcept {
  const size_t blank = merge.find(' ', 1);
  return blank + 1 == merge.size() ? std::string_view::npos : blank;
}

}  // namespace

MergeTable::MergeTable(std::span<const std::string_view> merges, const Vocabulary& vocabulary, base::ThreadPool& pool) {
  if (merges.size() > kMergesMax) {
    throw Error(Errc::bad_file,
                fmt::format("tokenizer.ggml.merges: {} merges, the limit is {}", merges.size(), kMergesMax));
  }
  merges_.resize(merges.size());
  const auto n_blocks = static_cast<int64_t>((merges.size() + kBlock - 1) / kBlock);
  pool.run(n_blocks, [&](int64_t block, int) { find_texts(merges, static_cast<size_t>(block) * kBlock, vocabulary); });
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& made = merges_[rank];
    if (made.left >= 0 && made.right >= 0 && made.result >= 0) continue;
    const char* const problem = blank_of(merges[rank]) == std::string_view::npos
                                    ? "is not two texts with a blank between"
                                    : "has a text that is no token";
    throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.merges: entry {} {}", rank, problem));
  }
  ranks_ = SplitTable(merges.size());
  pool.run(ranks_.n_parts(), [&](int64_t part, int) { fill_part(static_cast<int>(part)); });
  for (int part = 0; part < ranks_.n_parts(); ++part) {
    if (ranks_.part(part).collides()) throw Error(Errc::bad_file, "the merges are made to collide in a hash table");
  }
}

// A merge's left text, its right text and both joined must be tokens.
void MergeTable::find_texts(std::span<const std::string_view> merges, size_t first, const Vocabulary& vocabulary) {
  const auto block = merges.subspan(first, std::min(kBlock, merges.size() - first));
  std::array<std::string_view, 3 * kBlock> texts;
  std::array<TokenId, 3 * kBlock> ids;
  size_t n_bytes = 0;
  for (const std::string_view merge : block) n_bytes += merge.size();
  std::string joined;
  joined.reserve(n_bytes);  // the views below point into it
  for (size_t i = 0; i < block.size(); ++i) {
    const std::string_view merge = block[i];
    const size_t blank = blank_of(merge);
    if (blank == std::string_view::npos) continue;  // empty texts are not found
    const size_t begin = joined.size();
    joined.append(merge, 0, blank).append(merge, blank + 1);
    texts[3 * i] = merge.substr(0, blank);
    texts[3 * i + 1] = merge.substr(blank + 1);
    texts[3 * i + 2] = std::string_view(joined).substr(begin);
  }
  vocabulary.find_ids(std::span(texts).first(3 * block.size()), ids);
  for (size_t i = 0; i < block.size(); ++i) merges_[first + i] = {ids[3 * i], ids[3 * i + 1], ids[3 * i + 2]};
}

void MergeTable::fill_part(int part) noexcept {
  TaggedTable& table = ranks_.part(part);
  for (size_t rank = 0; rank < merges_.size() && !table.collides(); ++rank) {
    const Merge& made = merges_[rank];
    const uint32_t hash = hash_of(made.left, made.right);
    if (ranks_.part_of(hash) != part) continue;
    table.insert(hash, static_cast<int32_t>(rank),  // of a pair that comes again the first counts
                 [&](int32_t other) { return is_of(other, made.left, made.right); });
  }
}

int32_t MergeTable::find_rank(TokenId left, TokenId right) const noexcept {
  const uint32_t hash = hash_of(left, right);
  return ranks_.of(hash).find(hash, [&](int32_t rank) { return is_of(rank, left, right); });
}

void PairMerger::add(TokenId id) {
  const auto i = static_cast<int32_t>(symbols_.size());
  symbols_.push_back({id, i - 1, i + 1});
}

void PairMerger::merge_into(const MergeTable& merges, std::vector<TokenId>& out) {
  if (symbols_.empty()) return;
  symbols_.back().next = -1;
  queue_.clear();
  const auto key_at = [&](int32_t left) -> std::optional<uint64_t> {  // nullopt: the pair at left does not merge
    if (left < 0 || symbols_[left].next < 0) return std::nullopt;
    const int32_t rank = merges.find_rank(symbols_[left].id, symbols_[symbols_[left].next].id);
    if (rank < 0) return std::nullopt;
    return (static_cast<uint64_t>(rank) << 32) | static_cast<uint32_t>(left);
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols_.size()); ++i) {
    if (const auto key = key_at(i)) queue_.add(*key);
  }
  queue_.sort_in();
  while (!queue_.empty()) {
    const uint64_t key = queue_.pop();
    const auto i = static_cast<int32_t>(key & 0xFFFFFFFFu);
    const MergeTable::Merge& merge = merges[static_cast<uint32_t>(key >> 32)];
    Symbol& left = symbols_[i];
    if (left.id != merge.left || left.next < 0 || symbols_[left.next].id != merge.right) continue;
    Symbol& right = symbols_[left.next];
    left.id = merge.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols_[left.next].previous = i;
    for (const int32_t changed : {left.previous, i}) {
      if (const auto pair = key_at(changed)) queue_.push(*pair);
    }
  }
  for (int32_t i = 0; i >= 0; i = symbols_[i].next) out.push_back(symbols_[i].id);
  symbols_.clear();
}

BpeEncoder::BpeEncoder(const Vocabulary& vocabulary, std::span<const std::string_view> merges,
                       const PreTokenizerRules& rules, base::ThreadPool& pool)
    : vocabulary_(vocabulary), merges_(merges, vocabulary, pool), splitter_(rules),
      ignores_merges_(rules.ignores_merges) {
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    byte_token_[byte] = vocabulary.find_id(kByteAlphabet.spell({&one, 1}));
  }
}

void BpeEncoder::encode(std::string_view text, bool /*opens*/, std::vector<TokenId>& out) const {
  std::string repaired;
  if (!base::is_utf8(text)) {
    repaired = base::repaired_utf8(text);
    text = repaired;
  }
  PairMerger merger;
  uint32_t begin = 0;
  for (const uint32_t end : splitter_.split(text)) {
    encode_word(text.substr(begin, end - begin), merger, out);
    begin = end;
  }
}

void BpeEncoder::encode_word(std::string_view word, PairMerger& merger, std::vector<TokenId>& out) const {
  if (ignores_merges_ && word.size() <= vocabulary_.token_bytes_max()) {
    const TokenId whole = vocabulary_.find_id(kByteAlphabet.spell(word));
    if (whole >= 0 && vocabulary_.kind(whole) != TokenKind::control) {
      out.push_back(whole);
      return;
    }
  }
  for (const char byte : word) {
    if (const TokenId id = byte_token_[static_cast<uint8_t>(byte)]; id >= 0) merger.add(id);
  }
  merger.merge_into(merges_, out);
}

void BpeEncoder::append_bytes(TokenId id, std::string& out) const {
  const std::string_view text = vocabulary_.text(id);
  const size_t before = out.size();
  for (size_t at = 0; at < text.size();) {
    const base::Char c = base::char_at(text, at);
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
