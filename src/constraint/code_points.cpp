// See code_points.h.
#include "constraint/code_points.h"

#include <algorithm>

#include "base/utf8.h"

namespace assay::constraint {
namespace {

constexpr uint32_t kLast = 0x10FFFF;
constexpr uint32_t kSurrogateFirst = 0xD800, kSurrogateLast = 0xDFFF;

int length_of(uint32_t c) noexcept { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

std::array<uint8_t, 4> bytes_of(uint32_t c, int n) noexcept {
  constexpr uint8_t kLead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
  std::array<uint8_t, 4> bytes{};
  for (int i = n - 1; i > 0; --i, c >>= 6) bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  bytes[0] = static_cast<uint8_t>(kLead[n] | c);
  return bytes;
}

// Where a range of one length must be cut so that each byte moves freely within its own range; 0: nowhere.
uint32_t cut_of(uint32_t first, uint32_t last, int n) noexcept {
  for (int i = 1; i < n; ++i) {
    const uint32_t tail = (uint32_t{1} << (6 * i)) - 1;
    if ((first & ~tail) == (last & ~tail)) continue;
    if ((first & tail) != 0) return (first | tail) + 1;
    if ((last & tail) != tail) return last & ~tail;
  }
  return 0;
}

}  // namespace

CodePoints::CodePoints(std::initializer_list<CodePointRange> ranges) {
  for (const auto& [first, last] : ranges) ranges_.emplace_back(first, last);
  tidy();
}

CodePoints CodePoints::all() { return {{0, kSurrogateFirst - 1}, {kSurrogateLast + 1, kLast}}; }

void CodePoints::add(uint32_t first, uint32_t last) {
  ranges_.emplace_back(first, last);
  tidy();
}

void CodePoints::add(const CodePoints& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  tidy();
}

void CodePoints::tidy() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<CodePointRange> joined;
  for (const CodePointRange& r : ranges_) {
    if (!joined.empty() && r.first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, r.second);
    } else {
      joined.push_back(r);
    }
  }
  ranges_ = std::move(joined);
}

CodePoints CodePoints::complement() const {
  CodePoints rest;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) rest.ranges_.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) rest.ranges_.emplace_back(next, kLast);
  return rest & all();
}

CodePoints CodePoints::operator&(const CodePoints& other) const {
  CodePoints both;
  for (size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const uint32_t first = std::max(ranges_[i].first, other.ranges_[j].first);
    const uint32_t last = std::min(ranges_[i].second, other.ranges_[j].second);
    if (first <= last) both.ranges_.emplace_back(first, last);
    if (ranges_[i].second < other.ranges_[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return both;
}

bool CodePoints::contains(uint32_t c) const noexcept {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const CodePointRange& r) { return r.first <= c && c <= r.second; });
}

std::vector<ByteRanges> utf8_ranges(const CodePoints& set) {
  std::vector<CodePointRange> open;
  const CodePoints scalars = set & CodePoints::all();
  for (auto it = scalars.ranges().rbegin(); it != scalars.ranges().rend(); ++it) open.push_back(*it);
  std::vector<ByteRanges> result;
  while (!open.empty()) {
    const auto [first, last] = open.back();
    open.pop_back();
    const int n = length_of(first);
    constexpr uint32_t kEnd[] = {0, 0x80, 0x800, 0x10000, 0x110000};
    const uint32_t cut = last >= kEnd[n] ? kEnd[n] : cut_of(first, last, n);
    if (cut != 0) {
      open.emplace_back(cut, last);
      open.emplace_back(first, cut - 1);
      continue;
    }
    const auto low = bytes_of(first, n), high = bytes_of(last, n);
    ByteRanges ranges{n, {}};
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) ranges.at[i] = {low[i], high[i]};
    result.push_back(ranges);
  }
  return result;
}

uint32_t next_code_point(std::span<const char> text, size_t& at) noexcept {
  const assay::base::Char found = assay::base::char_at({text.data(), text.size()}, at);
  at += static_cast<size_t>(found.length);
  return found.code;
}

}  // namespace assay::constraint
