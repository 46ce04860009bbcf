// Which kernels run a plan on a card: the rows of the tables for every group of ops, by the number of tokens, resolved
// once when the plan is lowered. The run looks them up; `assay plan` shows them.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/attention_table.h"
#include "backend/cuda/kernels/card.h"
#include "backend/cuda/kernels/expert_table.h"
#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/kernels/linear_table.h"
#include "backend/cuda/kernels/op_table.h"
#include "backend/cuda/kernels/unpack_table.h"
#include "lower/lowering.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

class KernelPlan {
 public:
  KernelPlan(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::Lowering& lowering,
             const Card& card);

  // Of a group of products that read integers.
  const LinearChoice& linears(const lower::FusionGroup& group) const noexcept {
    return linears_[index_of(group.ops.front())];
  }
  // Of a product that reads floats: an op.
  const FloatChoice& floats(int32_t op) const noexcept { return floats_[index_of(op)]; }
  // Of a product by experts: an op.
  const ExpertChoice& experts(int32_t op) const noexcept { return experts_[index_of(op)]; }
  // Of a group of attention.
  const AttentionChoice& attention(const lower::FusionGroup& group) const noexcept {
    return attention_[index_of(group.ops.front())];
  }
  // Of an op alone.
  const OpChoice& alone(int32_t op) const noexcept { return alone_[static_cast<size_t>(alone_of_[at(op)])]; }
  // Of groups of Kind quantise, and of attention whose integers no merge makes.
  const OpChoice& integers() const noexcept { return integers_; }
  // Of a matrix whose rows are made floats, or halves.
  const UnpackRow& unpacker(ops::WeightId id) const noexcept { return *unpackers_[static_cast<size_t>(id)]; }
  // Of a group of Kind norm, heads or gate.
  const OpChoice& group(const lower::FusionGroup& group) const noexcept { return groups_[index_of(group.ops.front())]; }

  // Mode fast: the value that a group ends with and that the next one multiplies by all of its matrices in one type, and
  // that type; F32: there is none. For so many of its rows that these are fast tiles, the group leaves the value rounded
  // to that type, and the next finds it so. Both groups, which have ops, know it by themselves.
  struct Halves {
    ops::ValueId x = ops::kNone;
    int32_t reader = ops::kNone;  // an op
    tensor::DType type = tensor::DType::F32;
  };
  const Halves& halves_left(const lower::FusionGroup& group) const noexcept { return left_[at(group.ops.front())]; }
  const Halves& halves_found(const lower::FusionGroup& group) const noexcept { return found_[at(group.ops.front())]; }

 private:
  static size_t at(int32_t op) noexcept { return static_cast<size_t>(op); }
  size_t index_of(int32_t op) const noexcept { return static_cast<size_t>(of_op_[at(op)]); }
  void add_linears(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::Lowering& lowering,
                   const lower::FusionGroup& group);
  void add_floats(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::FusionGroup& group,
                  bool packs_rows);
  void add_experts(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::Lowering& lowering,
                   const lower::FusionGroup& group);
  // What products by experts find of those ahead of them, for every number of tokens.
  void link_experts(const ops::Plan& plan, const lower::Lowering& lowering);
  bool routes_are_settled(const ops::Plan& plan, const lower::Lowering& lowering, int32_t op, int64_t n_tokens) const;
  ExpertsMade experts_made(const ops::Plan& plan, const lower::Lowering& lowering, size_t i_group,
                           int64_t n_tokens) const;
  void add_attention(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::FusionGroup& group);

  const Card card_;
  std::vector<LinearChoice> linears_;
  std::vector<FloatChoice> floats_;
  std::vector<ExpertChoice> experts_;
  std::vector<AttentionChoice> attention_;
  std::vector<OpChoice> alone_, groups_;
  OpChoice integers_;
  std::vector<const UnpackRow*> unpackers_;  // per weight
  std::vector<int32_t> alone_of_;            // per op: its place in alone_
  std::vector<Halves> left_, found_;         // by a group, per op: of the one that begins with it
  std::vector<int32_t>
      of_op_;  // where an op's choice stands among those of its kind; of linears the first of the group
};

}  // namespace assay::backend::cuda
