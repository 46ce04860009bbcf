// The gated delta rule: a matrix S of every head, read by queries and corrected towards (k -> v). One token of a head,
// with decay e and strength b:
//   S[i, j] <- e_i S[i, j];   d[j] = b (v[j] - sum_i S[i, j] k[i]);   S[i, j] <- S[i, j] + k[i] d[j];   y[j] = sum_i
//   S[i, j] q[i]
// e is one number a head (gated delta net), or one for each element of k (KDA). q, k f32 [n_tokens, n_key_heads * d_k],
// v and y [n_tokens, n_heads * d_v], decay [n_tokens, n_heads] or [n_tokens, n_heads * d_k], strength [n_tokens,
// n_heads]. Value head h has the queries and keys of head h / (n_heads / n_key_heads), or, tiled, of head h %
// n_key_heads. State: S of each head, [d_k][d_v], f32, zero before the first token. Bits: s = S * e, one rounding; the
// sums are chains of fma(s, k[i], .) and of fma(S', q[i], .) over i ascending from +0; d = b * (v - u), one rounding
//   each; S' = fma(k[i], d, s). Every column j of S stands alone.
// Source: Yang et al. 2024, arXiv:2412.06464 (gated delta net); Kimi Linear, arXiv:2510.26692 (a decay for each
// element).
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"
#include "ops/state/state.h"

namespace assay::ops {

// One token of one head. n_decay: 1 or d_k numbers of decay. y must not overlap the others.
void delta_rule_ref(const float* q, const float* k, const float* v, const float* decay, int64_t n_decay, float strength,
                    int64_t d_k, int64_t d_v, float* s, float* y) noexcept;

struct DeltaRule {
  ValueId q, k, v, decay, strength;
  int64_t n_heads, n_key_heads;
  bool tiled;
  int32_t state;
  ValueId y;

  static constexpr const char* kKind = "delta_rule";
  static constexpr Role kRole = Role::state;
  void fields(FieldVisitor& f) {
    f.reads(q), f.reads(k), f.reads(v), f.reads(decay), f.reads(strength), f.state(state), f.writes(y);
  }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, const StateRun<float>& at, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, const StateRun<double>& at, int64_t begin, int64_t end) const noexcept;

  // The same by a kernel with the reference's bits.
  void run_by(decltype(&delta_rule_ref) token, const HostRows<float>& rows, const StateRun<float>& at, int64_t begin,
              int64_t end) const noexcept;

  int64_t key_head(int64_t head) const noexcept { return tiled ? head % n_key_heads : head / (n_heads / n_key_heads); }
};

}  // namespace assay::ops
