// The tokens are sorted by text, so those that share a prefix are neighbours; reading on narrows
// the range byte by byte.
#include "text/special_matcher.h"

#include <algorithm>

namespace assay::text {

SpecialMatcher::SpecialMatcher(const Vocabulary& vocabulary) {
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const TokenKind kind = vocabulary.kind(id);
    const bool anywhere = kind == TokenKind::user_defined;
    if (!anywhere && kind != TokenKind::control && kind != TokenKind::unknown) continue;
    if (!vocabulary.text(id).empty()) entries_.push_back({vocabulary.text(id), id, anywhere});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  for (const Entry& entry : entries_) ++first_byte_[static_cast<uint8_t>(entry.text[0]) + 1];
  for (size_t b = 0; b < 256; ++b) first_byte_[b + 1] += first_byte_[b];
}

const SpecialMatcher::Entry* SpecialMatcher::longest(std::string_view text, size_t at, size_t parsed_end) const {
  const auto first = static_cast<uint8_t>(text[at]);
  const Entry* low = entries_.data() + first_byte_[first];
  const Entry* high = entries_.data() + first_byte_[first + 1];
  const Entry* best = nullptr;
  for (size_t depth = 1; low != high; ++depth) {  // all of [low, high) agree with the text in depth bytes
    if (low->text.size() == depth) {
      if (low->anywhere || at + depth <= parsed_end) best = low;
      ++low;
    }
    if (at + depth == text.size()) break;
    const auto next = static_cast<uint8_t>(text[at + depth]);
    const auto byte = [&](const Entry& entry) { return static_cast<uint8_t>(entry.text[depth]); };
    low = std::partition_point(low, high, [&](const Entry& entry) { return byte(entry) < next; });
    high = std::partition_point(low, high, [&](const Entry& entry) { return byte(entry) == next; });
  }
  return best;
}

SpecialMatch SpecialMatcher::find(std::string_view text, size_t from, std::span<const Region> parsed,
                                  size_t& i_region) const {
  for (size_t at = from; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (first_byte_[byte] == first_byte_[byte + 1]) continue;
    while (i_region < parsed.size() && parsed[i_region].end <= at) ++i_region;
    const bool inside = i_region < parsed.size() && parsed[i_region].begin <= at;
    if (const Entry* entry = longest(text, at, inside ? parsed[i_region].end : 0)) {
      return {entry->id, at, at + entry->text.size()};
    }
  }
  return {};
}

}  // namespace assay::text
