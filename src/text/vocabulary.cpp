// Loading a vocabulary is one copy of its bytes and one pass that fills a flat hash table, both shared out to threads:
// no allocation and no view for each token.
#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "assay/error.h"
#include "base/utf8.h"

namespace assay::text {
namespace {

constexpr int kLookUps = 32;  // look-ups whose memory is fetched together

template <class Word>
uint64_t word_at(const char* at) noexcept {
  Word word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// The bytes of a text of at most 8, the first in the lowest bits.
uint64_t whole_word(std::string_view text) noexcept {
  const size_t size = text.size();
  const char* const at = text.data();
  if (size >= 4) return word_at<uint32_t>(at) | word_at<uint32_t>(at + size - 4) << 8 * (size - 4);
  if (size == 0) return 0;
  return word_at<uint8_t>(at) | word_at<uint8_t>(at + size / 2) << 8 * (size / 2) |
         word_at<uint8_t>(at + size - 1) << 8 * (size - 1);
}

uint32_t hash_of_words(uint64_t first, uint64_t last, size_t size) noexcept {
  return hash_of_key(mixed(first ^ size) ^ last);
}

uint32_t hash_of_long(
    std::string_view text) noexcept {  // more than 16 bytes; the end is read again rather than byte by byte
  uint64_t hash = text.size();
  const char* at = text.data();
  const char* const end = at + text.size();
  for (; at + 8 < end; at += 8) hash = mixed(hash ^ word_at<uint64_t>(at));
  return hash_of_key(hash ^ word_at<uint64_t>(end - 8));
}

uint32_t hash_of(std::string_view text) noexcept {
  const size_t size = text.size();
  if (size > 16) return hash_of_long(text);
  if (size > 8) return hash_of_words(word_at<uint64_t>(text.data()), word_at<uint64_t>(text.data() + size - 8), size);
  return hash_of_words(0, whole_word(text), size);
}

// The same of a text with 8 bytes before it that may be read; of an empty one, which is never looked for, any number.
// Lengths of texts follow no pattern, so this chooses without a jump.
uint32_t hash_of_packed(std::string_view text) noexcept {
  static_assert(PackedTexts::kLengthBytes >= 8);
  const size_t size = text.size();
  if (size > 16) return hash_of_long(text);
  const uint64_t two_words = size > 8 ? ~uint64_t{0} : 0;
  const char* const last = text.data() + size - 8;
  const uint64_t first_word = word_at<uint64_t>(last - ((size - 8) & two_words));
  return hash_of_words(first_word & two_words, word_at<uint64_t>(last) >> ((64 - 8 * size) & 63 & ~two_words), size);
}

constexpr TokenId kRun = 1024;  // tokens that are looked at together

}  // namespace

Vocabulary::Vocabulary(const PackedTexts& texts, std::vector<TokenKind> kinds, std::vector<float> scores,
                       base::ThreadPool& pool)
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
  find_texts(texts);
  const int64_t n_runs = (size() + kRun - 1) / kRun;
  std::vector<uint8_t> fine(static_cast<size_t>(n_runs));
  const auto hashes = std::make_unique_for_overwrite<uint32_t[]>(texts.size());
  pool.run(n_runs, [&](int64_t run, int) {
    const auto first = static_cast<TokenId>(run * kRun), last = std::min(size(), first + kRun);
    copy_texts(texts, first, last);
    fine[static_cast<size_t>(run)] = are_utf8(first, last);
    for (TokenId id = first; id < last; ++id) hashes[static_cast<size_t>(id)] = hash_of_packed(text(id));
  });
  if (std::count(fine.begin(), fine.end(), 0) != 0) require_utf8();
  build_index({hashes.get(), texts.size()}, pool);
}

void Vocabulary::find_texts(const PackedTexts& texts) {
  const size_t total = texts.bytes().size();
  constexpr size_t kTotalMax = std::numeric_limits<uint32_t>::max() - PackedTexts::kLengthBytes;
  if (total > kTotalMax) {
    throw Error(
        Errc::bad_file,
        fmt::format("the texts of the vocabulary and their lengths are {} bytes, the limit is {}", total, kTotalMax));
  }
  memory_ = base::AlignedBuffer((texts.size() + 1) * sizeof(uint32_t) + total, "the vocabulary");
  memory_.advise_huge_pages();
  begin_ = std::span(reinterpret_cast<uint32_t*>(memory_.data()), texts.size() + 1);
  bytes_ = reinterpret_cast<char*>(begin_.data() + begin_.size());
  const char* const base = reinterpret_cast<const char*>(texts.bytes().data());
  size_t longest = 0;
  texts.for_each([&](size_t id, std::string_view text) {
    begin_[id] = static_cast<uint32_t>(text.data() - base);
    longest = std::max(longest, text.size());
  });
  token_bytes_max_ = longest;
  begin_.back() = static_cast<uint32_t>(total + PackedTexts::kLengthBytes);
  if (token_bytes_max_ <= kTokenBytesMax) return;
  texts.for_each([](size_t id, std::string_view text) {
    if (text.size() > kTokenBytesMax) {
      throw Error(Errc::bad_file,
                  fmt::format("token {} is {} bytes long, the limit is {}", id, text.size(), kTokenBytesMax));
    }
  });
}

void Vocabulary::copy_texts(const PackedTexts& texts, TokenId first, TokenId last) noexcept {
  const size_t begin = begin_[first] - PackedTexts::kLengthBytes;
  std::memcpy(bytes_ + begin, texts.bytes().data() + begin, begin_[last] - PackedTexts::kLengthBytes - begin);
}

// One look over the bytes of many texts: where all bytes of their lengths are ASCII, no character can begin in one text
// and end in another.
bool Vocabulary::are_utf8(TokenId first, TokenId last) const noexcept {
  uint32_t lengths = 0;
  for (TokenId id = first; id < last; ++id)
    lengths |= begin_[id + 1] - begin_[id] - uint32_t{PackedTexts::kLengthBytes};
  static_assert(kTokenBytesMax < 0x8000);
  const size_t begin = begin_[first] - PackedTexts::kLengthBytes;
  if ((lengths & 0x80) == 0 && base::is_utf8({bytes_ + begin, begin_[last] - PackedTexts::kLengthBytes - begin}))
    return true;
  for (TokenId id = first; id < last; ++id) {
    if (!base::is_utf8(text(id))) return false;
  }
  return true;
}

void Vocabulary::require_utf8() const {
  for (TokenId id = 0; id < size(); ++id) {
    if (!base::is_utf8(text(id))) throw Error(Errc::bad_file, fmt::format("the text of token {} is not UTF-8", id));
  }
}

Vocabulary::PartFilled Vocabulary::fill_part(int part, std::span<const uint32_t> hashes) noexcept {
  TaggedTable& table = ids_.part(part);
  std::array<TokenId, kLookUps> own;
  for (TokenId first = 0; first < size(); first += kLookUps) {
    const TokenId last = std::min<TokenId>(size(), first + kLookUps);
    size_t n = 0;
    for (TokenId id = first; id < last; ++id) {
      own[n] = id;
      n += ids_.part_of(hashes[id]) == part;
    }
    for (size_t k = 0; k < n; ++k) table.fetch(hashes[own[k]]);
    for (size_t k = 0; k < n; ++k) {
      const std::string_view added = text(own[k]);
      if (added.empty()) continue;
      const TokenId other = table.insert(hashes[own[k]], own[k], [&](TokenId id) { return text(id) == added; });
      if (other >= 0) return {other, own[k], false};
    }
    if (table.collides()) return {-1, -1, true};
  }
  return {};
}

void Vocabulary::build_index(std::span<const uint32_t> hashes, base::ThreadPool& pool) {
  ids_ = SplitTable(kinds_.size());
  std::array<PartFilled, SplitTable::kParts> filled;
  pool.run(ids_.n_parts(),
           [&](int64_t part, int) { filled[static_cast<size_t>(part)] = fill_part(static_cast<int>(part), hashes); });
  const PartFilled* twins = nullptr;
  for (const PartFilled& part : filled) {
    if (part.id >= 0 && (twins == nullptr || part.id < twins->id)) twins = &part;
  }
  if (twins != nullptr)
    throw Error(Errc::bad_file, fmt::format("tokens {} and {} have the same text", twins->twin, twins->id));
  if (std::any_of(filled.begin(), filled.end(), [](const PartFilled& part) { return part.collides; })) {
    throw Error(Errc::bad_file, "the texts of the vocabulary are made to collide in a hash table");
  }
}

TokenId Vocabulary::find_hashed(std::string_view wanted, uint32_t hash) const noexcept {
  return ids_.of(hash).find(hash, [&](TokenId id) { return text(id) == wanted; });
}

TokenId Vocabulary::find_id(std::string_view wanted) const noexcept {
  if (wanted.empty() || wanted.size() > token_bytes_max_) return -1;
  return find_hashed(wanted, hash_of(wanted));
}

void Vocabulary::find_ids(std::span<const std::string_view> texts, std::span<TokenId> ids) const noexcept {
  std::array<uint32_t, kLookUps> hashes;
  for (size_t first = 0; first < texts.size(); first += kLookUps) {
    const size_t n = std::min<size_t>(kLookUps, texts.size() - first);
    for (size_t k = 0; k < n; ++k) {
      hashes[k] = hash_of(texts[first + k]);
      ids_.of(hashes[k]).fetch(hashes[k]);
    }
    for (size_t k = 0; k < n; ++k) {
      if (const TokenId id = ids_.of(hashes[k]).first(hashes[k]); id >= 0) __builtin_prefetch(&begin_[id]);
    }
    for (size_t k = 0; k < n; ++k) {
      if (const TokenId id = ids_.of(hashes[k]).first(hashes[k]); id >= 0) __builtin_prefetch(text(id).data());
    }
    for (size_t k = 0; k < n; ++k) {
      ids[first + k] = texts[first + k].empty() ? -1 : find_hashed(texts[first + k], hashes[k]);
    }
  }
}

}  // namespace assay::text
