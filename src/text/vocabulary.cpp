// Loading a vocabulary is one copy of its bytes and one pass that fills a flat hash table: no allocation for each token.
#include "text/vocabulary.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "assay/error.h"
#include "text/utf8.h"

namespace assay::text {
namespace {

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

Vocabulary::Vocabulary(std::span<const std::string_view> texts, std::vector<TokenKind> kinds, std::vector<float> scores)
    : kinds_(std::move(kinds)), scores_(std::move(scores)) {
  if (texts.empty()) throw Error(Errc::bad_file, "tokenizer.ggml.tokens: the vocabulary is empty");
  if (texts.size() > kVocabSizeMax) {
    throw Error(Errc::bad_file,
                fmt::format("tokenizer.ggml.tokens: {} tokens, the limit is {}", texts.size(), kVocabSizeMax));
  }
  if (kinds_.empty()) kinds_.resize(texts.size(), TokenKind::normal);
  if (kinds_.size() != texts.size()) {
    throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.token_type has {} entries, the vocabulary {} tokens",
                                            kinds_.size(), texts.size()));
  }
  if (!scores_.empty() && scores_.size() != texts.size()) {
    throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.scores has {} entries, the vocabulary {} tokens",
                                            scores_.size(), texts.size()));
  }
  for (size_t id = 0; id < scores_.size(); ++id) {
    if (std::isnan(scores_[id])) throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.scores: entry {} is NaN", id));
  }
  copy_texts(texts);
  build_index();
}

void Vocabulary::copy_texts(std::span<const std::string_view> texts) {
  size_t total = 0;
  for (size_t id = 0; id < texts.size(); ++id) {
    const size_t bytes = texts[id].size();
    if (bytes > kTokenBytesMax) {
      throw Error(Errc::bad_file, fmt::format("token {} is {} bytes long, the limit is {}", id, bytes, kTokenBytesMax));
    }
    if (!is_utf8(texts[id])) throw Error(Errc::bad_file, fmt::format("the text of token {} is not UTF-8", id));
    token_bytes_max_ = std::max(token_bytes_max_, bytes);
    total += bytes;
  }
  if (total > std::numeric_limits<uint32_t>::max()) {
    throw Error(Errc::bad_file, fmt::format("the texts of the vocabulary are {} bytes, the limit is {}", total,
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
}

void Vocabulary::build_index() {
  slots_.resize(std::bit_ceil(2 * kinds_.size() + 2));
  const size_t mask = slots_.size() - 1;
  // A file made to collide would make this quadratic; an honest one needs less than two probes for each token.
  size_t probes_left = 64 * kinds_.size() + 4096;
  for (TokenId id = 0; id < size(); ++id) {
    const std::string_view own = text(id);
    if (own.empty()) continue;
    const uint32_t hash = hash_of(own);
    size_t i = hash & mask;
    for (; slots_[i].id >= 0; i = (i + 1) & mask) {
      if (slots_[i].hash == hash && text(slots_[i].id) == own) {
        throw Error(Errc::bad_file, fmt::format("tokens {} and {} have the same text", slots_[i].id, id));
      }
      if (--probes_left == 0) throw Error(Errc::bad_file, "the texts of the vocabulary are made to collide in a hash table");
    }
    slots_[i] = {hash, id};
  }
}

TokenId Vocabulary::find_id(std::string_view wanted) const noexcept {
  if (wanted.empty() || wanted.size() > token_bytes_max_) return -1;
  const size_t mask = slots_.size() - 1;
  const uint32_t hash = hash_of(wanted);
  for (size_t i = hash & mask; slots_[i].id >= 0; i = (i + 1) & mask) {
    if (slots_[i].hash == hash && text(slots_[i].id) == wanted) return slots_[i].id;
  }
  return -1;
}

}  // namespace assay::text
