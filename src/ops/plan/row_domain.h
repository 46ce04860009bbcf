// Which rows a value has: the one place that says how many these are of a batch, and which token is behind each.
//
//   tokens          | t0 | t1 | t2 | ..                     one a token of the batch
//   outputs         | t0 | t2 | ..                          one a token whose logits are wanted
//   routed_tokens   | t0 r0 | t0 r1 | t1 r0 | t1 r1 | ..    of each token one a rank: for each expert that it goes to
//   routed_outputs  | t0 r0 | t0 r1 | t2 r0 | t2 r1 | ..    the same of tokens whose logits are wanted
#pragma once

#include <cstdint>
#include <span>

namespace assay::ops {

struct RowDomain {
  enum class Kind { tokens, outputs, routed_tokens, routed_outputs };
  Kind kind = Kind::tokens;
  int64_t n_ranks = 1;  // rows of a token; 1 where tokens are not routed

  static const RowDomain tokens, outputs;  // outputs: after SelectOutputs
  // The rows of the experts to which these rows are routed, n_ranks each (ops/linear/route.h); nobody routes routed
  // ones again.
  constexpr RowDomain routed(int64_t n) const noexcept {
    return {is_of_outputs() ? Kind::routed_outputs : Kind::routed_tokens, n};
  }

  constexpr bool is_of_outputs() const noexcept {
    switch (kind) {
      case Kind::tokens:
      case Kind::routed_tokens: return false;
      case Kind::outputs:
      case Kind::routed_outputs: return true;
    }
    return false;
  }
  constexpr bool is_routed() const noexcept {
    switch (kind) {
      case Kind::tokens:
      case Kind::outputs: return false;
      case Kind::routed_tokens:
      case Kind::routed_outputs: return true;
    }
    return false;
  }
  // Rows of so many tokens, of which n_outputs want their logits.
  constexpr int64_t n_rows(int64_t n_tokens, int64_t n_outputs) const noexcept {
    switch (kind) {
      case Kind::tokens: return n_tokens;
      case Kind::outputs: return n_outputs;
      case Kind::routed_tokens: return n_tokens * n_ranks;
      case Kind::routed_outputs: return n_outputs * n_ranks;
    }
    return 0;
  }
  // The token of the batch behind a row; selected: those whose logits are wanted.
  constexpr int64_t token_of(int64_t row, std::span<const int64_t> selected) const noexcept {
    switch (kind) {
      case Kind::tokens: return row;
      case Kind::outputs: return selected[static_cast<size_t>(row)];
      case Kind::routed_tokens: return row / n_ranks;
      case Kind::routed_outputs: return selected[static_cast<size_t>(row / n_ranks)];
    }
    return 0;
  }
  friend constexpr bool operator==(const RowDomain&, const RowDomain&) = default;
};

inline constexpr RowDomain RowDomain::tokens{Kind::tokens, 1};
inline constexpr RowDomain RowDomain::outputs{Kind::outputs, 1};

}  // namespace assay::ops
