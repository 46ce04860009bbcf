// The tokens of a model: their texts (one block of bytes, as the file has them), scores and kinds, and the way from a
// text back to its id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "assay/tokenizer.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "text/packed_texts.h"
#include "text/tagged_table.h"

namespace assay::text {

inline constexpr size_t kVocabSizeMax = size_t{1} << 22;
static_assert(kVocabSizeMax <= TaggedTable::kSizeMax);
inline constexpr size_t kTokenBytesMax = size_t{1} << 14;

class Vocabulary {
 public:
  // Copies the texts. kinds, scores: empty (all normal, all 0) or one for each token. Throws
  // Error(bad_file) for an empty list, a text that is too long, no UTF-8, or there twice. Empty
  // texts are kept; nothing finds them. pool: at work here alone.
  Vocabulary(const PackedTexts& texts, std::vector<TokenKind> kinds, std::vector<float> scores, base::ThreadPool& pool);

  int32_t size() const noexcept { return static_cast<int32_t>(kinds_.size()); }
  bool has(TokenId id) const noexcept { return id >= 0 && id < size(); }
  std::string_view text(TokenId id) const noexcept {  // valid as long as the vocabulary lives, even if it is moved
    return {bytes_ + begin_[id], begin_[id + 1] - begin_[id] - PackedTexts::kLengthBytes};
  }
  TokenKind kind(TokenId id) const noexcept { return kinds_[id]; }
  void set_kind(TokenId id, TokenKind kind) noexcept { kinds_[id] = kind; }
  float score(TokenId id) const noexcept { return scores_.empty() ? 0.0f : scores_[id]; }
  size_t token_bytes_max() const noexcept { return token_bytes_max_; }

  std::optional<TokenId> find(std::string_view text) const noexcept {
    const TokenId id = find_id(text);
    return id < 0 ? std::nullopt : std::optional<TokenId>(id);
  }
  TokenId find_id(std::string_view text) const noexcept;  // -1: no such token
  // The same for many texts, several times as fast: the memory of one look-up is fetched while
  // others are at work.
  void find_ids(std::span<const std::string_view> texts, std::span<TokenId> ids) const noexcept;

 private:
  // A text that is there twice, and what stopped the filling of a part of the index.
  struct PartFilled {
    TokenId twin = -1, id = -1;  // id: the later one
    bool collides = false;
  };
  TokenId find_hashed(std::string_view text, uint32_t hash) const noexcept;
  void find_texts(const PackedTexts& texts);
  void copy_texts(const PackedTexts& texts, TokenId first, TokenId last) noexcept;
  bool are_utf8(TokenId first, TokenId last) const noexcept;
  void require_utf8() const;
  PartFilled fill_part(int part, std::span<const uint32_t> hashes) noexcept;
  void build_index(std::span<const uint32_t> hashes, base::ThreadPool& pool);

  base::AlignedBuffer memory_;
  std::span<uint32_t> begin_;  // in memory_: size() + 1; where a text begins, behind the length that stands before it
  char* bytes_ = nullptr;      // in memory_: each text behind its length
  std::vector<TokenKind> kinds_;
  std::vector<float> scores_;
  SplitTable ids_;  // by text
  size_t token_bytes_max_ = 0;
};

}  // namespace assay::text
