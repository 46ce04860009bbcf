// RoPE with the scalings that files name: none, linear, YaRN, and Llama 3's factors per frequency.
#pragma once

#include <span>

#include "model/hparams.h"
#include "ops/plan/plan.h"

namespace assay::model {

// How far and in which way a file stretches its rotations; its keys are <architecture>.rope.scaling.*.
struct RopeScaling {
  enum class Kind { none, linear, yarn };
  Kind kind = Kind::none;
  double factor = 1.0;         // linear, yarn: positions are stretched by this
  double n_ctx_original = 0;   // yarn: the context length before stretching
  double beta_fast = 32.0;     // yarn: rotations in n_ctx_original above which a frequency is kept,
  double beta_slow = 1.0;      // and below which it is stretched whole
  double magnitude = 1.0;      // multiplies cos and sin
  bool rounds_corners = true;  // yarn: the pairs where stretching begins and ends are whole numbers
};

// Error(unsupported) for a scaling type that is not served, by name.
RopeScaling read_rope_scaling(const KeyReader& keys, const Hparams& h);

// theta: the base; factors: empty, or dim / 2 divisors of the frequencies (the tensor rope_freqs.weight).
ops::RopeSpec make_rope(int64_t dim, double theta, bool interleaved, const RopeScaling& scaling,
                        std::span<const float> factors = {});

}  // namespace assay::model
