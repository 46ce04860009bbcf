// Who makes and who reads each value of a plan, and what every op does with the cache: asked of the ops' records once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan.h"

namespace assay::lower {

class Links {
 public:
  explicit Links(const ops::Plan& plan);

  // Of an op, an index into Plan::ops.
  const std::vector<ops::ValueId>& inputs(int32_t op) const noexcept { return ops_[at(op)].inputs; }
  ops::ValueId output(int32_t op) const noexcept { return ops_[at(op)].output; }
  // Of Plan::cache_layers: the one that the op writes, the one that it reads; kNone for all others.
  int32_t layer_stored(int32_t op) const noexcept { return layer_stored_[at(op)]; }
  int32_t layer_read(int32_t op) const noexcept { return layer_read_[at(op)]; }

  // Of a value: the op that writes it, kNone for a part's input.
  int32_t producer(ops::ValueId value) const noexcept { return producer_[at(value)]; }
  // The ops that read it, ascending; one that reads it twice stands there twice.
  std::span<const int32_t> readers(ops::ValueId value) const noexcept { return readers_[at(value)]; }
  // Whether a run's caller is given it: it stays until the next run.
  bool is_given_out(ops::ValueId value) const noexcept { return value == output_ || value == handed_; }
  // Whether one op alone needs it.
  bool is_read_once(ops::ValueId value) const noexcept { return readers(value).size() == 1 && !is_given_out(value); }

 private:
  std::vector<ops::OpValues> ops_;
  std::vector<int32_t> layer_stored_, layer_read_, producer_;
  std::vector<std::vector<int32_t>> readers_;
  ops::ValueId output_, handed_;
};

}  // namespace assay::lower
