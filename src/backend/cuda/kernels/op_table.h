// The table of the GPU's kernels of ops that are neither products nor attention of the usual kind: each alone, and the
// fusion groups between two products. What it has no row for, and no other table, is borrowed.
//
//   name                        op or group    takes                          counts  kernel
//   embed, rope, add, ...       the op         any                            rows    rows/row_kernels.cu, plain_rows.cu
//   delta rule of three warps   delta_rule     keys of 16, 64, 128            parts   rows/state_delta.cu
//   delta rule                  delta_rule     the same                       parts   the same, state in registers
//   delta rule in memory        delta_rule     any                            parts   the same
//   norm of rows by warps       norm           integers, rows of 32 n         rows    rows/fused.cu
//   norm of short rows          norm           up to 512 columns              rows    the same, small blocks
//   norm of many rows           norm           no integers                    rows    the same, small blocks
//   norm of rows                norm           any                            rows    the same
//   heads, plain                heads          no norm, whole rotation, f16   tokens  the same
//   heads by lanes              heads          64, 128, 256, by halves, f16   tokens  the same
//   heads                       heads          any                            tokens  the same
//   gate with integers          gate           any                            rows    linear/quantise_rows.cu
//   integers of rows            quantise       any                            rows    the same
//
// Parts: consecutive tokens of a sequence, where a part has several; where every token is alone, any number of them.
// The first row that takes a shape wins; resolved once, when a plan is lowered, into ranges of what it counts. A row is
// started by runtime/run_ops.cpp, of groups by run_group.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/kernels/op_kernel.h"
#include "lower/lowering.h"
#include "lower/token_ranges.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

// What rows look at, of an op or a group; each at what is its own.
struct OpShape {
  int64_t width = 0;            // norm: of a row; delta_rule: of a key
  int64_t n_blocks = 0;         // delta_rule: of threads, for a part
  int64_t token_elements = 0;   // heads: of queries, keys and values
  bool makes_integers = false;  // norm
  bool is_plain = false;        // heads: bare, rotated whole, over a cache in half precision
  bool is_in_lanes = false;     // heads: rotated whole, by halves, over such a cache, for which a warp has whole lanes
};

struct OpRow {
  std::string_view name;  // unique in the table
  OpKernel kernel;
  const void* (*type)() noexcept;  // of the op that it runs alone; null: it runs a group
  lower::FusionGroup::Kind group;
  bool (*takes)(const OpShape& shape, const Card& card) noexcept = nullptr;     // null: any
  int64_t n_min = 1;                                                            // of what it counts
  int64_t (*n_max)(const OpShape& shape, const Card& card) noexcept = nullptr;  // null: any number
};

std::span<const OpRow> op_table() noexcept;  // those of higher rank first
bool has_op_kernel(const ops::Op& op) noexcept;

// The kernels of one op or group, by what its rows count.
class OpChoice : public lower::RowRanges<OpRow> {
 public:
  // Of an op alone that has a kernel.
  OpChoice(const ops::Plan& plan, const ops::Op& op, const Card& card);
  // Of a group of Kind norm, heads, gate or quantise.
  OpChoice(lower::FusionGroup::Kind group, const OpShape& shape, const Card& card);

 private:
  void resolve(const void* type, lower::FusionGroup::Kind group, const OpShape& shape, const Card& card);
};
OpShape group_shape(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::Lowering& lowering,
                    const lower::FusionGroup& group);

}  // namespace assay::backend::cuda
