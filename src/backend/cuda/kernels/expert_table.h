// The table of the GPU's products with the matrices of the experts that tokens were routed to
// (experts/expert_linear.h). A pair is a token and one of its n_used experts.
//
//   name                      weights         pairs                   card    kernel
//   expert group tiles of 64  superblocks     2 an expert on average  Hopper  experts/expert_groups.cu, tiles of 64 columns
//   expert group tiles        cut into parts  the same                Hopper  the same, of 128
//   expert vectors            cut into parts  any                     any     experts/expert_gemv.cu
//   experts of any format     blocks          any                     any     experts/expert_any.cuh
//   experts of floats         floats          any                     any     experts/expert_float.cu
//
// The first row that takes a product wins; resolved once, into ranges of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/kernels/linear_table.h"
#include "lower/lowering.h"
#include "lower/token_ranges.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

struct ExpertProduct {
  LinearMatrix w;                                   // the rows of all experts
  quant::Activation kind = quant::Activation::f32;  // of integers; f32: floats
  int planes = 2;
  int64_t n_experts = 0, n_used = 0;
};

// Of a group of Kind experts.
ExpertProduct expert_product(const ops::Plan& plan, const ops::ExecutorOptions& options,
                             const lower::Lowering& lowering, const lower::FusionGroup& group);

inline constexpr int64_t kGroupedPairsOfExpertMin = 2;  // on average; fewer are faster each by itself

enum class ExpertKernel { group_tiles, vectors, any_format, floats };

struct ExpertRow {
  std::string_view name;  // unique in the table
  ExpertKernel kernel;
  int columns;  // of a tile; 0: it has none
  bool (*takes)(const ExpertProduct& product, int64_t n_pairs, const Card& card) noexcept;
};

std::span<const ExpertRow> expert_table() noexcept;  // those of higher rank first
const ExpertRow* find_expert_row(std::string_view name) noexcept;

// What of the product ahead serves a product in group tiles too: the order of its pairs, the activations in it.
struct ExpertsMade {
  bool order = false, x = false;
  bool operator==(const ExpertsMade&) const = default;
};

struct ExpertRange {
  int64_t tokens_min = 1, tokens_max = lower::kAnyTokens;
  const ExpertRow* row = nullptr;
  // As the products ahead in the plan run with so many tokens (kernel_plan.h).
  bool routes_are_settled = false;
  ExpertsMade made;

  bool chooses_as(const ExpertRange& other) const noexcept {
    return row == other.row && routes_are_settled == other.routes_are_settled && made == other.made;
  }
};

class ExpertChoice : public lower::TokenRanges<ExpertRange> {
 public:
  ExpertChoice(const ExpertProduct& product, const Card& card);
  explicit ExpertChoice(std::span<const ExpertRange> ranges);  // ascending; of each where it begins counts
  const ExpertRow& at(int64_t n_tokens) const noexcept { return *range_at(n_tokens).row; }
};

// Of one token: two products of the same row, a gate, the product of what it leaves and the sum over the ranks, where
// they stand so in a plan (experts/expert_token.h).
struct ExpertTokenProducts {
  LinearMatrix gate, up, down;
  quant::Activation kind = quant::Activation::f32;  // as all of them read their rows
  int64_t n_used = 0, d_in = 0, width = 0;          // width: of a rank's row between them
};
struct ExpertTokenRow {
  std::string_view gated, summed;  // the names of its two kernels
  bool (*takes)(const ExpertTokenProducts& products) noexcept;
};
const ExpertTokenRow* find_expert_token_row(const ExpertTokenProducts& products) noexcept;  // null: there is none

}  // namespace assay::backend::cuda
