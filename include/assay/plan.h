// A model's forward pass as the list of operations that every device runs, with what each costs and the kernels that a
// context chose for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "assay/bench.h"
#include "assay/context.h"

namespace assay {

struct PlanWeight {
  std::string name;            // "blk.3.attn_q.weight"
  std::string type;            // "Q4_K"
  std::vector<int64_t> shape;  // row-major: rows, then columns
};

// What runs an operation for a range of tokens: those of a batch, or those that chose one expert.
struct PlanKernel {
  int64_t tokens_min = 1;
  int64_t tokens_max = 0;  // 0: any number
  std::string name;        // "avx2 vector"; "reference"
  bool borrowed = false;   // the device has no kernel of its own: it runs the scalar reference
};

struct PlannedOp {
  std::string name;    // "blk.3.attn_q"
  std::string kind;    // "linear"
  int64_t layer = -1;  // -1: outside the layers
  std::vector<std::string> reads;
  std::string writes;  // empty: of an operation that only stores
  int64_t width = 0;   // elements of a row that it writes
  std::vector<PlanWeight> weights;
  Work work;                        // of one run of so many tokens
  std::vector<PlanKernel> kernels;  // ascending, without a gap; none where the device does not tell
};

// In the order of the plan. work is that of n_tokens after n_past others, the logits of one wanted. The context must
// not be running.
std::vector<PlannedOp> plan_of(Context& context, int64_t n_tokens = 1, int64_t n_past = 0);

// The same for a GPU that need not be here, by name: which kernels would run there.
struct CardPlan {
  ContextOptions options;  // as a context on that card would have them
  std::vector<PlannedOp> ops;
};
CardPlan plan_for_card(const std::shared_ptr<const Model>& model, const ContextOptions& options,
                       const std::string& card, int64_t n_tokens = 1, int64_t n_past = 0);
std::vector<std::string> card_names();  // "h200", "a100", ...; the first is the one to take where nobody says

}  // namespace assay
