// Sets of bytes, and how the bytes of a character follow one another in UTF-8.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace assay::constraint {

class ByteSet {
 public:
  void add(int first, int last) noexcept {  // nothing, where first > last
    for (int b = first; b <= last; b = (b / 64 + 1) * 64) {
      const int n = std::min(last - b, 63 - b % 64);  // more of the same word
      words_[static_cast<size_t>(b) / 64] |= ~uint64_t{0} >> (63 - n) << (b % 64);
    }
  }
  bool has(uint8_t byte) const noexcept { return (words_[byte / 64u] >> (byte % 64u) & 1) != 0; }
  bool empty() const noexcept { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  bool within(const ByteSet& other) const noexcept { return (*this & ~other).empty(); }
  int size() const noexcept {
    int n = 0;
    for (const uint64_t w : words_) n += std::popcount(w);
    return n;
  }
  uint8_t first() const noexcept {  // of one that is not empty
    size_t i = 0;
    while (i < 3 && words_[i] == 0) ++i;
    return static_cast<uint8_t>(64 * i + static_cast<size_t>(std::countr_zero(words_[i])));
  }
  ByteSet operator&(const ByteSet& o) const noexcept {
    return combined(o, [](uint64_t a, uint64_t b) { return a & b; });
  }
  ByteSet operator|(const ByteSet& o) const noexcept {
    return combined(o, [](uint64_t a, uint64_t b) { return a | b; });
  }
  ByteSet operator~() const noexcept {
    return combined(*this, [](uint64_t a, uint64_t) { return ~a; });
  }
  bool operator==(const ByteSet&) const noexcept = default;

 private:
  template <class F>
  ByteSet combined(const ByteSet& o, const F& f) const noexcept {
    ByteSet result;
    for (size_t i = 0; i < words_.size(); ++i) result.words_[i] = f(words_[i], o.words_[i]);
    return result;
  }
  std::array<uint64_t, 4> words_{};
};

// Bytes that begin a character alike: as many follow them, the first of these in one range, others from 0x80 to 0xBF.
struct Leads {
  uint8_t first = 0, last = 0;
  int n_behind = 0;
  uint8_t second_first = 0x80, second_last = 0xBF;
};
inline constexpr std::array<Leads, 9> kLeads = {{{0x00, 0x7F, 0},
                                                 {0xC2, 0xDF, 1},
                                                 {0xE0, 0xE0, 2, 0xA0, 0xBF},
                                                 {0xE1, 0xEC, 2},
                                                 {0xED, 0xED, 2, 0x80, 0x9F},
                                                 {0xEE, 0xEF, 2},
                                                 {0xF0, 0xF0, 3, 0x90, 0xBF},
                                                 {0xF1, 0xF3, 3},
                                                 {0xF4, 0xF4, 3, 0x80, 0x8F}}};
constexpr const Leads* leads_of(uint8_t byte) noexcept {  // nullptr: it begins none
  for (const Leads& leads : kLeads) {
    if (leads.first <= byte && byte <= leads.last) return &leads;
  }
  return nullptr;
}

// Bytes that begin characters, in few groups: a set of groups has one word.
inline constexpr int kGroups = 62;
int group_of(uint8_t lead) noexcept;
// The groups of which the set has every byte.
uint64_t groups_within(const ByteSet& set) noexcept;

}  // namespace assay::constraint
