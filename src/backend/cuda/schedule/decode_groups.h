// Which fusion groups decode of one token runs as one kernel. Made once per executor; no bit depends on it.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/expert_table.h"
#include "backend/cuda/schedule/decode_products.h"
#include "lower/fusion.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

using lower::FusionGroup;

struct DecodeGroup {
  enum class Kind {
    alone,        // a fusion group as it is, but for integers that no one reads then; two of products by one route
    linears,      // [norm,] products that make the integers of their row [, gate]
    attention,    // heads, attention
    routes,       // [norm,] a router's product, the routes
    expert_gate,  // two products by one route, their gate (expert_blocks.h)
    expert_sum,   // a product by experts that makes the integers of its rows, the sum over the ranks
    nothing,      // what the readers do themselves
  };
  Kind kind = Kind::alone;
  std::vector<int32_t> members;  // fusion groups, in their order
  FusionGroup alone;
  // Members, kNone where there is none.
  int32_t norm = ops::kNone, linears = ops::kNone, gate = ops::kNone, heads = ops::kNone, attention = ops::kNone;
  int32_t route = ops::kNone, experts = ops::kNone, sum = ops::kNone;  // experts: the first of two, or the one
  bool makes_integers = false;                                         // routes: those of the norm
  // An op: the sum that the norm of the next group begins with, which the products of this one make as they write; that
  // group finds it made.
  int32_t sum_made = ops::kNone;
  bool is_added = false;
  const DecodeRow* row = nullptr;              // linears, routes: their kernel
  const ExpertTokenRow* expert_row = nullptr;  // expert_gate, expert_sum: theirs
  bool reader_is_narrow = false;               // attention, right ahead of a product for which decode_is_narrow()
  // Of a shard, ops: the gather whose row these kernels send themselves, and the one for whose row they wait.
  int32_t gather_sent = ops::kNone, gather_awaited = ops::kNone;
  // of_own_columns: one product of the shard's own columns (ops::Linear::columns), whose sums go to all, where the
  // readers add them; its row is not sent by who makes it (keeps_row).
  bool of_own_columns = false, keeps_row = false;
};

// Every fusion group in one, in their order.
std::vector<DecodeGroup> find_decode_groups(const DecodeProducts& products);

}  // namespace assay::backend::cuda
