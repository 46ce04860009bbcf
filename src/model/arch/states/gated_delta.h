// Layers by the gated delta rule (ops/state/delta_rule.h), and what stands between them in the families of Qwen3-Next:
// attention whose output passes a gate.
#pragma once

#include <string>
#include <utility>

#include "model/arch/decoder.h"

namespace assay::model::arch {

// One decay a head: gated delta net. Sizes are ssm.*: d_k = state_size, key heads = group_count, value heads =
// time_step_rank, d_v = inner_size / these.
class GatedDeltaNet {
 public:
  // tiled: value head h has the keys of head h % key heads, else h / (value heads / key heads).
  GatedDeltaNet(const Decoder& decoder, bool tiled,
                ops::ActivationFunction output_gate = ops::ActivationFunction::silu);
  ops::ValueId mix(ops::ValueId x) const;  // as the mixers of recurrent.h

 private:
  std::pair<ops::ValueId, ops::ValueId> qkv_gate(ops::ValueId x) const;
  std::pair<ops::ValueId, ops::ValueId> alpha_beta(ops::ValueId x) const;

  const Decoder& d_;
  bool tiled_;
  ops::ActivationFunction output_gate_;
  int64_t kernel_, d_k_, d_v_, n_key_heads_, n_heads_;
};

// A decay for each element of k: Kimi Delta Attention. Heads are the attention's, of kda.head_dim elements. Decays and
// the output's gate come from products of two matrices (ssm_f_a, ssm_f_b), or from one. With kda.safe_gate a log decay
// is kda.gate_lower_bound * sigmoid(ssm_a (f + dt)), else ssm_a * softplus(f + dt).
class KimiDelta {
 public:
  KimiDelta(const Decoder& decoder, bool bounded);
  ops::ValueId mix(ops::ValueId x) const;

 private:
  ops::ValueId convolved(const char* name, ops::ValueId x, int64_t width) const;
  ops::ValueId projected(const std::string& name, ops::ValueId x, int64_t width) const;
  ops::ValueId decay(ops::ValueId x, int64_t n_heads) const;

  const Decoder& d_;
  int64_t kernel_, head_dim_;
  double safe_bound_ = 0;  // below 0: of kda.safe_gate
};

// attn_q holds (q, gate) of each head; q and k are normed by head and turned; what attention gives times sigmoid(gate),
// then attn_output.
ops::ValueId gated_attention(const Decoder& d, ops::ValueId x, ops::RopeId rope,
                             std::initializer_list<ops::ValueId*> residuals);

// Routed experts and a shared one behind a sigmoid of its own.
ops::ValueId experts_and_gated_shared(const Decoder& d, ops::ValueId x, const RouteRule& rule);

// The whole of a model of Qwen3-Next's kind: layers by GatedDeltaNet, with attention between them; dense where the file
// has no experts.
ops::ValueId gated_delta_model(const ArchInput& input, PlanBuilder& p, bool tiled);

}  // namespace assay::model::arch
