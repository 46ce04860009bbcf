// Finds tokens that stand in a text as they are spelled: user-defined tokens anywhere, control and
// unknown tokens where the caller lets special tokens be parsed. Of those that begin at a place the
// longest is taken, and the first place wins.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace assay::text {

// Part of a text, from begin up to end.
struct Region {
  size_t begin = 0;
  size_t end = 0;
};

struct SpecialMatch {
  TokenId id = -1;  // -1: none
  size_t begin = 0;
  size_t end = 0;
};

class SpecialMatcher {
 public:
  // The vocabulary must outlive the matcher.
  explicit SpecialMatcher(const Vocabulary& vocabulary);

  // The first match at or after from. parsed: ascending, apart from each other; a control token
  // must lie inside one of them. i_region: where to begin in parsed, moved along with the search.
  SpecialMatch find(std::string_view text, size_t from, std::span<const Region> parsed, size_t& i_region) const;

 private:
  struct Entry {
    std::string_view text;
    TokenId id = -1;
    bool anywhere = false;
  };
  // The longest token at text[at] that may end at parsed_end at most, or anywhere if it is
  // user-defined.
  const Entry* longest(std::string_view text, size_t at, size_t parsed_end) const;

  std::vector<Entry> entries_;              // sorted by text
  std::array<uint32_t, 257> first_byte_{};  // entries that begin with byte b: [first_byte_[b], first_byte_[b + 1])
};

}  // namespace assay::text
