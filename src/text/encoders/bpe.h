// Byte-level byte pair encoding (model "gpt2"): a pre-tokenizer cuts the text into words; in a word
// the pair of neighbours with the strongest merge, leftmost first, becomes one token until no pair
// merges. Sources: Sennrich et al. 2016, arXiv:1508.07909; the byte alphabet of GPT-2
// (byte_alphabet.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/encoders/pair_queue.h"
#include "text/encoders/word_encoder.h"
#include "text/splitter.h"
#include "text/tagged_table.h"
#include "text/vocabulary.h"

namespace assay::text {

inline constexpr size_t kMergesMax = size_t{1} << 22;
static_assert(kMergesMax <= TaggedTable::kSizeMax);

// Merges by rank, and from a pair of ids to its merge.
class MergeTable {
 public:
  struct Merge {
    TokenId left = -1;
    TokenId right = -1;
    TokenId result = -1;
  };
  // Throws Error(bad_file) for a merge without a blank between two texts or with a text that is no
  // token.
  MergeTable(std::span<const std::string_view> merges, const Vocabulary& vocabulary, base::ThreadPool& pool);

  const Merge& operator[](uint32_t rank) const noexcept { return merges_[rank]; }
  int32_t find_rank(TokenId left, TokenId right) const noexcept;  // -1: the pair does not merge

 private:
  void find_texts(std::span<const std::string_view> merges, size_t first, const Vocabulary& vocabulary);
  void fill_part(int part) noexcept;
  bool is_of(int32_t rank, TokenId left, TokenId right) const noexcept {
    return merges_[rank].left == left && merges_[rank].right == right;
  }
  static uint32_t hash_of(TokenId left, TokenId right) noexcept {
    return hash_of_key((uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right));
  }

  std::vector<Merge> merges_;
  SplitTable ranks_;  // by pair
};

// The symbols of one word, merged by rank. One object serves many words, for its buffers.
class PairMerger {
 public:
  void add(TokenId id);  // a symbol behind those added since the last word
  // Merges until no pair does, appends what is left and forgets the word.
  void merge_into(const MergeTable& merges, std::vector<TokenId>& out);

 private:
  struct Symbol {
    TokenId id = -1;  // -1: merged into the one before
    int32_t previous = -1;
    int32_t next = -1;
  };
  std::vector<Symbol> symbols_;
  PairQueue queue_;  // by rank
};

class BpeEncoder final : public WordEncoder {
 public:
  // The vocabulary must outlive the encoder.
  BpeEncoder(const Vocabulary& vocabulary, std::span<const std::string_view> merges, const PreTokenizerRules& rules,
             base::ThreadPool& pool);

  void encode(std::string_view text, bool opens, std::vector<TokenId>& out) const override;
  void append_bytes(TokenId id, std::string& out) const override;
  bool adds_space() const noexcept override { return false; }

 private:
  void encode_word(std::string_view word, PairMerger& merger, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  Splitter splitter_;
  bool ignores_merges_ = false;
  std::array<TokenId, 256> byte_token_{};  // -1: the vocabulary has none; such a byte vanishes, as
                                           // in Hugging Face's tokenizers
};

}  // namespace assay::text
