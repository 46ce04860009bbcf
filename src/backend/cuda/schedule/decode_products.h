// The products of a lowered plan as decode of one token sees them: which of its kernels serve, and which make the
// integers of their row for themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/kernels/decode_table.h"
#include "backend/cuda/kernels/expert_table.h"
#include "lower/lowering.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "quant/activations.h"
#include "tensor/view.h"

namespace assay::backend::cuda {

struct DecodeProducts {
  // All must outlive it.
  DecodeProducts(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::Lowering& lowering,
                 const Card& card);

  template <class Record>
  const Record& record(int32_t op) const {
    return plan.ops[static_cast<size_t>(op)].get<Record>();
  }
  // By its place in the lowering; null beyond the last.
  const lower::FusionGroup* group_at(size_t i) const {
    return i < lowering.groups.size() ? &lowering.groups[i] : nullptr;
  }
  const lower::FusionGroup& group(int32_t i) const { return lowering.groups[static_cast<size_t>(i)]; }

  // Of a group of linears.
  quant::Activation kind_of(const lower::FusionGroup& linears) const;
  ops::ValueId row_of(const lower::FusionGroup& linears) const;
  const tensor::TensorView& matrix_of(int32_t linear) const;  // an op
  bool is_fast(const tensor::TensorView& w) const;            // mode fast multiplies it on the float tensor cores

  // Whether all who read a value's integers make them for themselves; then nobody writes them.
  bool is_made_by_readers(int32_t twin) const { return twin != ops::kNone && own_[static_cast<size_t>(twin)]; }
  // Whether the group is products that decode's kernels serve, with the norm ahead of them or without. null: no.
  bool is_served(const lower::FusionGroup* group, bool has_norm) const;
  // The row of all of a group of linears; null: none has them all.
  const DecodeRow* row_for(const lower::FusionGroup& linears, bool has_norm) const;
  // The row of the expert block that begins with a group (expert_blocks.h); null: none does.
  const ExpertTokenRow* expert_block(int32_t first) const {
    return first < 0 ? nullptr : expert_blocks_[static_cast<size_t>(first)];
  }
  // Whether a group of experts runs one token as vectors (kernels/expert_table.h).
  bool are_vectors(const lower::FusionGroup& experts) const;
  // That of a router's product with the routes of its logits; null: it has none.
  const DecodeRow* router_row(int32_t linear) const;

  const ops::Plan& plan;
  const ops::ExecutorOptions& options;
  const lower::Lowering& lowering;
  const Card& card;

 private:
  std::vector<const ExpertTokenRow*> expert_blocks_;  // per group
  std::vector<bool> own_;                             // per twin
};

}  // namespace assay::backend::cuda
