// Loading a vocabulary is one copy of its bytes and one pass that fills a flat hash table: no
// allocation for each token.
#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "assay/error.h"
#include "text/utf8.h"

namespace assay::text {
namespace {

constexpr int kBlock = 32;  // look-ups whose memory is fetched together

uint64_t mixed(uint64_t x) noexcept {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

uint32_t hash_of(std::string_view text) noexcept {
  uint64_t hash = text.size();
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = mixed(hash ^ word);
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < left; ++i) tail |= uint64_t{static_cast<uint8_t>(at[i])} << (8 * i);
  hash = mixed(mixed(hash ^ tail));
  return static_cast<uint32_t>(hash >> 32);
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
    if (!texts[id].empty()) std::memcpy(bytes_.data() + at, texts[id].data(), texts[id].size());
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
  slots_.resize(std::bit_ceil(kinds_.size() + kinds_.size() / 2 + 1));  // at most two thirds full
  // A file made to collide would make this quadratic; an honest one needs less than two probes for
  // each token.
  size_t probes_left = 64 * kinds_.size() + 4096;
  std::array<uint32_t, kBlock> hashes;
  for (TokenId first = 0; first < size(); first += kBlock) {
    const int n = std::min<int>(kBlock, size() - first);
    for (int k = 0; k < n; ++k) {
      hashes[k] = hash_of(text(first + k));
      __builtin_prefetch(&slots_[hashes[k] & mask()], 1);
    }
    for (int k = 0; k < n; ++k) {
      const TokenId id = first + k;
      const std::string_view own = text(id);
      if (own.empty()) continue;
      size_t i = hashes[k] & mask();
      for (; slots_[i].id >= 0; i = (i + 1) & mask()) {
        if (holds(slots_[i], hashes[k], own)) {
          throw Error(Errc::bad_file,
                      fmt::format("tokens {} and {} have the same text", slots_[i].id, id));
        }
        if (--probes_left == 0)
          throw Error(Errc::bad_file,
                      "the texts of the vocabulary are made to collide in a hash table");
      }
      slots_[i] = {hashes[k], id, begin_[id], static_cast<uint32_t>(own.size())};
    }
  }
}

TokenId Vocabulary::find_hashed(std::string_view wanted, uint32_t hash) const noexcept {
  for (size_t i = hash & mask(); slots_[i].id >= 0; i = (i + 1) & mask()) {
    if (holds(slots_[i], hash, wanted)) return slots_[i].id;
  }
  return -1;
}

TokenId Vocabulary::find_id(std::string_view wanted) const noexcept {
  if (wanted.empty() || wanted.size() > token_bytes_max_) return -1;
  return find_hashed(wanted, hash_of(wanted));
}

void Vocabulary::find_ids(std::span<const std::string_view> texts,
                          std::span<TokenId> ids) const noexcept {
  std::array<uint32_t, kBlock> hashes;
  for (size_t first = 0; first < texts.size(); first += kBlock) {
    const size_t n = std::min<size_t>(kBlock, texts.size() - first);
    for (size_t k = 0; k < n; ++k) {
      hashes[k] = hash_of(texts[first + k]);
      __builtin_prefetch(&slots_[hashes[k] & mask()]);
    }
    for (size_t k = 0; k < n; ++k)
      __builtin_prefetch(bytes_.data() + slots_[hashes[k] & mask()].begin);
    for (size_t k = 0; k < n; ++k) {
      ids[first + k] = texts[first + k].empty() ? -1 : find_hashed(texts[first + k], hashes[k]);
    }
  }
}

}  // namespace assay::text
