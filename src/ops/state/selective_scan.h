// The scan of Mamba and Mamba 2: a state h of every head, one token after the other:
//   h[p, n] <- exp(dt a[n]) h[p, n] + (dt x[p]) b[n];   y[p] = sum_n c[n] h[p, n] + D x[p]
// p over the elements of a head, n over its state. x, y f32 [n_tokens, n_heads * head_dim]; dt [n_tokens, n_heads],
// softplus taken already; b, c [n_tokens, n_groups * d_state], shared by the n_heads / n_groups heads of a group; a f32
// [n_heads] (Mamba 2: the same for all n) or [n_heads, d_state] (Mamba, whose heads are single channels), negative; D
// f32 [n_heads] or none. State: h of each head, [head_dim][d_state], f32, zero before the first token. Bits: e = exp(dt
// * a), the product rounded once; u = dt * x[p]; h' = fma(h, e, u * b[n]); the sum of fma(c[n], h', .) in Lanes32 over
// n ascending,
//   folded; then fma(D, x[p], .) where there is a D. Every p stands alone.
// Source: Gu and Dao 2023, arXiv:2312.00752; Dao and Gu 2024, arXiv:2405.21060.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"
#include "ops/state/state.h"

namespace assay::ops {

// One token of one head.
struct ScanToken {
  const float *x, *b, *c, *a;
  float dt, d;
  bool has_d;
  int64_t n_a;  // 1, or d_state
  int64_t head_dim, d_state;
};
void selective_scan_ref(const ScanToken& token, float* h, float* y) noexcept;

struct SelectiveScan {
  ValueId x, dt, b, c;
  WeightId a, d;  // d: or kNone
  int64_t n_heads, n_groups;
  int32_t state;
  ValueId y;

  static constexpr const char* kKind = "selective_scan";
  static constexpr Role kRole = Role::state;
  void fields(FieldVisitor& f) {
    f.reads(x), f.reads(dt), f.reads(b), f.reads(c);
    f.vector(a), f.vector(d), f.state(state), f.writes(y);
  }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, const StateRun<float>& at, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, const StateRun<double>& at, int64_t begin, int64_t end) const noexcept;

  // The same by a kernel with the reference's bits.
  void run_by(decltype(&selective_scan_ref) token, const HostRows<float>& rows, const StateRun<float>& at,
              int64_t begin, int64_t end) const noexcept;

  int64_t group(int64_t head) const noexcept { return head / (n_heads / n_groups); }
};

}  // namespace assay::ops
