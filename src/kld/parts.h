// Parts of a plan that are run again and again with other weights: where it may be cut, weights replaced, a part run
// over a chunk of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::kld {

// The layers before which the plan can be cut so that one value of all tokens crosses: ops::split_plan. Others are run
// together.
std::vector<int32_t> borders_of(const ops::Plan& plan);

// What stands in the place of a tensor of the file; same shape.
struct Replacement {
  tensor::TensorView own, with;
};

// Whether an op of the part reads the tensor, or rows of it.
bool reads(const ops::Plan& part, const tensor::TensorView& own);
// Whether an op that is of no layer does: a table of tokens, a head.
bool reads_outside_layers(const ops::Plan& plan, const tensor::TensorView& own);
// Puts replacements in the place of the tensors, and of rows of them.
ops::Plan with_replaced(ops::Plan part, std::span<const Replacement> replacements);

// Tokens run from an empty context; logits are wanted of those from n_unscored on.
struct Chunk {
  std::vector<int32_t> tokens;
  int64_t n_unscored = 0;
};

// [n_tokens, width], row-major; empty for a part that begins a plan or ends it.
using Rows = std::vector<float>;

class PartRunner {
 public:
  // Logits are made for n_rows tokens at a time at most. The plan and the pool must outlive it.
  PartRunner(const ops::Plan& part, const Chunk& longest, int64_t n_rows, base::ThreadPool& pool);
  // What the part hands on. sink: told the first of a few scored tokens (0 is the first scored of the chunk) and their
  // count, whose logits can be read then.
  Rows run(const Chunk& chunk, const Rows& input,
           const std::function<void(int64_t first, int64_t n, const ops::Executor& executor)>& sink) const;

 private:
  const ops::Plan& part_;
  int64_t n_rows_;
  std::unique_ptr<ops::Executor> executor_;
};

}  // namespace assay::kld
