// Numbers of tokens, from one on, cut into ranges of which each has its own choice of kernels: what a backend's table
// is resolved to when a plan is lowered, and all that a run looks at.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay::lower {

inline constexpr int64_t kAnyTokens = int64_t{1} << 62;

// One row of a table for some numbers of tokens.
template <class Row>
struct RowRange {
  int64_t tokens_min = 1, tokens_max = kAnyTokens;
  const Row* row = nullptr;

  bool chooses_as(const RowRange& other) const noexcept { return row == other.row; }
};

// A Range has tokens_min and tokens_max, and says by chooses_as() whether it has the choice of another.
template <class Range>
class TokenRanges {
 public:
  const Range& range_at(int64_t n_tokens) const noexcept {  // from 1 on
    const Range* range = ranges_.data();
    while (n_tokens > range->tokens_max) ++range;
    return *range;
  }
  std::span<const Range> ranges() const noexcept { return ranges_; }  // ascending, without a gap from 1 on

 protected:
  // From its first number of tokens on; it is the same range where it chooses as the last one does.
  void add(const Range& range) {
    if (!ranges_.empty() && ranges_.back().chooses_as(range)) return;
    if (!ranges_.empty()) ranges_.back().tokens_max = range.tokens_min - 1;
    ranges_.push_back(range);
  }

 private:
  std::vector<Range> ranges_;
};

// Where each range is a row.
template <class Row>
class RowRanges : public TokenRanges<RowRange<Row>> {
 public:
  const Row& at(int64_t n_tokens) const noexcept { return *this->range_at(n_tokens).row; }
};

}  // namespace assay::lower
