// Loading a vocabulary is one copy of its bytes and one pass that fills a flat hash table: no
// allocation for each token.
#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "assay/error.h"
#include "text/utf8.h"

namespace assay::text {
namespace {

constexpr int kBlock = 32;  // look-ups whose memory is fetched together

template <class Word>
uint64_t word_at(const char* at) noexcept {
  Word word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// The end of a text is read again rather than byte by byte.
uint64_t hash_of(std::string_view text) noexcept {
  const size_t size = text.size();
  const char* at = text.data();
  const char* const end = at + size;
  uint64_t hash = size;
  if (size >= 8) {
    for (; at + 8 < end; at += 8) hash = mixed(hash ^ word_at<uint64_t>(at));
    hash ^= word_at<uint64_t>(end - 8);
  } else if (size >= 4) {
    hash ^= word_at<uint32_t>(at) << 32 | word_at<uint32_t>(end - 4);
    hash += size << 56;
  } else if (size > 0) {
    hash ^= word_at<uint8_t>(at) << 40 | word_at<uint8_t>(at + size / 2) << 24 | word_at<uint8_t>(end - 1) << 8;
  }
  return mixed(mixed(hash));
}

// memcpy without a call for the short texts that nearly all tokens have: both ends are copied, which may overlap.
void copy_text(std::string_view text, char* out) noexcept {
  const char* at = text.data();
  const size_t size = text.size();
  const auto ends = [&](auto word) {
    auto last = word;
    std::memcpy(&word, at, sizeof word);
    std::memcpy(&last, at + size - sizeof last, sizeof last);
    std::memcpy(out, &word, sizeof word);
    std::memcpy(out + size - sizeof last, &last, sizeof last);
  };
  if (size > 16) {
    std::memcpy(out, at, size);
  } else if (size >= 8) {
    ends(uint64_t{});
  } else if (size >= 4) {
    ends(uint32_t{});
  } else if (size >= 2) {
    ends(uint16_t{});
  } else if (size == 1) {
    *out = *at;
  }
}

}  // namespace

Vocabulary::Vocabulary(std::span<const std::string_view> texts, std::vector<TokenKind> kinds,
                       std::vector<float> scores)
    : kinds_(std::move(kinds)), scores_(std::move(scores)) {
  if (texts.empty()) throw Error(Errc::bad_file, "tokenizer.ggml.tokens: the vocabulary is empty");
  if (texts.size() > kVocabSizeMax) {
    throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.tokens: {} tokens, the limit is {}",
                                            texts.size(), kVocabSizeMax));
  }
  if (kinds_.empty()) kinds_.resize(texts.size(), TokenKind::normal);
  if (kinds_.size() != texts.size()) {
    throw Error(Errc::bad_file,
                fmt::format("tokenizer.ggml.token_type has {} entries, the vocabulary {} tokens",
                            kinds_.size(), texts.size()));
  }
  if (!scores_.empty() && scores_.size() != texts.size()) {
    throw Error(Errc::bad_file,
                fmt::format("tokenizer.ggml.scores has {} entries, the vocabulary {} tokens",
                            scores_.size(), texts.size()));
  }
  for (size_t id = 0; id < scores_.size(); ++id) {
    if (std::isnan(scores_[id]))
      throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.scores: entry {} is NaN", id));
  }
  copy_texts(texts);
  build_index();
}

void Vocabulary::copy_texts(std::span<const std::string_view> texts) {
  size_t total = 0;
  for (size_t id = 0; id < texts.size(); ++id) {
    const size_t bytes = texts[id].size();
    if (bytes > kTokenBytesMax) {
      throw Error(Errc::bad_file, fmt::format("token {} is {} bytes long, the limit is {}", id,
                                              bytes, kTokenBytesMax));
    }
    token_bytes_max_ = std::max(token_bytes_max_, bytes);
    total += bytes;
  }
  if (total > std::numeric_limits<uint32_t>::max()) {
    throw Error(Errc::bad_file,
                fmt::format("the texts of the vocabulary are {} bytes, the limit is {}", total,
                            std::numeric_limits<uint32_t>::max()));
  }
  bytes_.resize(total);
  begin_.resize(texts.size() + 1);
  uint32_t at = 0;
  for (size_t id = 0; id < texts.size(); ++id) {
    begin_[id] = at;
    copy_text(texts[id], bytes_.data() + at);
    at += static_cast<uint32_t>(texts[id].size());
  }
  begin_.back() = at;
  require_utf8();
}

// One look over all bytes: a text in the middle of UTF-8 that does not begin inside a character,
// and whose successor does not, is UTF-8.
void Vocabulary::require_utf8() const {
  bool fine = is_utf8({bytes_.data(), bytes_.size()});
  for (TokenId id = 0; fine && id < size(); ++id) {
    fine = text(id).empty() || (static_cast<uint8_t>(text(id)[0]) & 0xC0) != 0x80;
  }
  for (TokenId id = 0; !fine && id < size(); ++id) {
    if (!is_utf8(text(id)))
      throw Error(Errc::bad_file, fmt::format("the text of token {} is not UTF-8", id));
  }
}

void Vocabulary::build_index() {
  ids_ = TaggedTable(kinds_.size());
  std::array<uint64_t, kBlock> hashes;
  for (TokenId first = 0; first < size(); first += kBlock) {
    const int n = std::min<int>(kBlock, size() - first);
    for (int k = 0; k < n; ++k) {
      hashes[k] = hash_of(text(first + k));
      ids_.fetch(hashes[k]);
    }
    for (int k = 0; k < n; ++k) {
      const TokenId id = first + k;
      const std::string_view own = text(id);
      if (own.empty()) continue;
      const TokenId other = ids_.insert(hashes[k], id, [&](TokenId i) { return text(i) == own; });
      if (other >= 0) {
        throw Error(Errc::bad_file, fmt::format("tokens {} and {} have the same text", other, id));
      }
    }
    if (ids_.collides())
      throw Error(Errc::bad_file,
                  "the texts of the vocabulary are made to collide in a hash table");
  }
}

TokenId Vocabulary::find_hashed(std::string_view wanted, uint64_t hash) const noexcept {
  return ids_.find(hash, [&](TokenId id) { return text(id) == wanted; });
}

TokenId Vocabulary::find_id(std::string_view wanted) const noexcept {
  if (wanted.empty() || wanted.size() > token_bytes_max_) return -1;
  return find_hashed(wanted, hash_of(wanted));
}

void Vocabulary::find_ids(std::span<const std::string_view> texts,
                          std::span<TokenId> ids) const noexcept {
  std::array<uint64_t, kBlock> hashes;
  for (size_t first = 0; first < texts.size(); first += kBlock) {
    const size_t n = std::min<size_t>(kBlock, texts.size() - first);
    for (size_t k = 0; k < n; ++k) {
      hashes[k] = hash_of(texts[first + k]);
      ids_.fetch(hashes[k]);
    }
    for (size_t k = 0; k < n; ++k) {
      if (const TokenId id = ids_.first(hashes[k]); id >= 0) __builtin_prefetch(&begin_[id]);
    }
    for (size_t k = 0; k < n; ++k) {
      if (const TokenId id = ids_.first(hashes[k]); id >= 0) __builtin_prefetch(text(id).data());
    }
    for (size_t k = 0; k < n; ++k) {
      ids[first + k] = texts[first + k].empty() ? -1 : find_hashed(texts[first + k], hashes[k]);
    }
  }
}

}  // namespace assay::text
