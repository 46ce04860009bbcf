// Sets of Unicode scalar values, and the UTF-8 bytes that spell them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace assay::constraint {

using CodePointRange = std::pair<uint32_t, uint32_t>;  // both ends belong to it

class CodePoints {
 public:
  CodePoints() = default;
  CodePoints(std::initializer_list<CodePointRange> ranges);
  static CodePoints all();  // U+0000 to U+10FFFF without surrogates

  void add(uint32_t first, uint32_t last);
  void add(const CodePoints& other);
  CodePoints complement() const;  // within all()
  CodePoints operator&(const CodePoints& other) const;
  bool contains(uint32_t c) const noexcept;
  bool empty() const noexcept { return ranges_.empty(); }
  std::span<const CodePointRange> ranges() const noexcept { return ranges_; }  // ascending, apart from one another

 private:
  void tidy();
  std::vector<CodePointRange> ranges_;
};

// Texts of n bytes, each byte in its range.
struct ByteRanges {
  int n = 0;
  std::array<std::pair<uint8_t, uint8_t>, 4> at{};
};
// The UTF-8 of all members: each spelling in exactly one entry, and nothing else.
std::vector<ByteRanges> utf8_ranges(const CodePoints& set);

// The next character of `text` from `at` on, which moves behind it. The text is UTF-8.
uint32_t next_code_point(std::span<const char> text, size_t& at) noexcept;

}  // namespace assay::constraint
