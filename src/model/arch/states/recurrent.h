// What layers with a state are made of (ops/state/state.h): the mixers of Mamba, of Mamba 2, and the short convolution.
// Each takes a layer's normed input to what is added to the residual; in the last layer it keeps only the tokens whose
// logits are wanted, and so must who calls it of what it adds that to (Decoder::wanted). Keys are ssm.* and
// shortconv.*; A in a file is -exp(A_log) already.
#pragma once

#include <vector>

#include "model/arch/decoder.h"

namespace assay::model::arch {

// attention.recurrent_layers, else all but every full_attention_interval-th.
std::vector<bool> recurrent_layers(const Decoder& d);
bool is_recurrent(const Decoder& d, int32_t layer);  // a layer without KV heads

class Mamba2 {
 public:
  Mamba2(const Decoder& decoder, float norm_eps);  // Error(bad_file) for sizes that do not fit one another
  ops::ValueId mix(ops::ValueId x) const;

 private:
  const Decoder& d_;
  float eps_;
  int64_t kernel_, d_inner_, d_state_, n_heads_, n_groups_;
};

class Mamba {
 public:
  enum class Norms { none, plain, weighted };  // RMS over dt, B and C: without weights, or by ssm_{dt,b,c}_norm
  Mamba(const Decoder& decoder, Norms norms);
  ops::ValueId mix(ops::ValueId x) const;

 private:
  ops::ValueId normed(const char* name, ops::ValueId x) const;

  const Decoder& d_;
  Norms norms_;
  int64_t kernel_, d_inner_, d_state_, dt_rank_;
};

// out_proj(c * conv(b * x)), (b, c, x) = in_proj x; no activation.
ops::ValueId short_conv(const Decoder& d, ops::ValueId x);

}  // namespace assay::model::arch
