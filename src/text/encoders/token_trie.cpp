// See token_trie.h.
#include "text/encoders/token_trie.h"

#include <algorithm>
#include <span>

namespace assay::text {
namespace {

// A token and the first bytes of its text as a number of the same order, which decides most comparisons.
struct Sorted {
  uint64_t head;
  TokenId id;
};

uint64_t head_of(std::string_view text) noexcept {
  uint64_t head = 0;
  for (size_t i = 0; i < sizeof head; ++i) head = head << 8 | (i < text.size() ? static_cast<uint8_t>(text[i]) : 0);
  return head;
}

struct Range {
  size_t first, last;
};

}  // namespace

TokenTrie::TokenTrie(const Vocabulary& vocabulary, std::vector<TokenId> ids) {
  std::vector<Sorted> sorted;
  sorted.reserve(ids.size());
  for (const TokenId id : ids) sorted.push_back({head_of(vocabulary.text(id)), id});
  std::sort(sorted.begin(), sorted.end(), [&](const Sorted& a, const Sorted& b) {
    return a.head != b.head ? a.head < b.head : vocabulary.text(a.id) < vocabulary.text(b.id);
  });
  const auto text = [&](size_t i) { return vocabulary.text(sorted[i].id); };

  std::vector<Range> ranges = {{0, sorted.size()}};  // of the tokens below a node
  nodes_.emplace_back();
  labels_.push_back(0);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    auto [first, last] = ranges[i];
    const size_t end = nodes_[i].end;
    if (first < last && text(first).size() == end) nodes_[i].id = sorted[first++].id;
    nodes_[i].first_child = static_cast<uint32_t>(nodes_.size());
    while (first < last) {
      const auto label = static_cast<uint8_t>(text(first)[end]);
      const auto beyond = std::partition_point(
          sorted.begin() + static_cast<std::ptrdiff_t>(first), sorted.begin() + static_cast<std::ptrdiff_t>(last),
          [&](const Sorted& one) { return static_cast<uint8_t>(vocabulary.text(one.id)[end]) <= label; });
      const auto next = static_cast<size_t>(beyond - sorted.begin());
      const std::string_view a = text(first), b = text(next - 1);
      const auto parting = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
      nodes_.push_back({a.data(), static_cast<uint32_t>(parting - a.begin())});
      labels_.push_back(static_cast<char>(label));
      ranges.push_back({first, next});
      first = next;
    }
    nodes_[i].n_children = static_cast<uint32_t>(nodes_.size()) - nodes_[i].first_child;
  }
}

}  // namespace assay::text
