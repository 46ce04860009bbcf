// Where the executors of a model's shards (ops/plan/plan_shards.h), each run by a thread of its own, hand one another
// their columns.
#pragma once

#include <cstdint>
#include <vector>

#include "base/barrier.h"
#include "tensor/view.h"

namespace assay::backend::cpu {

class ShardTable {
 public:
  // The barrier, of as many threads as there are shards, must outlive the table.
  explicit ShardTable(base::Barrier& barrier) : barrier_(barrier), offered_(static_cast<size_t>(barrier.n_threads())) {}

  // Fills all columns of y, of which x holds those from `column` on; all shards call it with as many rows.
  // Error(device) where another failed.
  void gather(int i_shard, const tensor::ConstMat& x, int64_t column, const tensor::Mat& y);

 private:
  struct Offer {
    tensor::ConstMat x;
    int64_t column = 0;
  };
  base::Barrier& barrier_;
  std::vector<Offer> offered_;  // per shard
};

}  // namespace assay::backend::cpu
