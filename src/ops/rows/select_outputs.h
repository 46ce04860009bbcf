// y[i] = x[t] for the i-th token t whose logits are wanted: the rows that go on to the output head. Bits: copied.
#pragma once

#include <cstdint>
#include <span>

#include "ops/plan/plan.h"
#include "tensor/view.h"

namespace assay::ops {

struct SelectOutputs {
  ValueId x;
  ValueId y;

  static constexpr const char* kKind = "select_outputs";
  static constexpr Role kRole = Role::select;
  static constexpr bool kRowsAlike = false;
  void fields(FieldVisitor& f) { f.reads(x), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
};

// outputs: one flag a row of x. y has as many rows as flags are set. Returns that number.
int64_t select_outputs_ref(tensor::ConstMat x, std::span<const uint8_t> outputs, tensor::Mat y) noexcept;

}  // namespace assay::ops
