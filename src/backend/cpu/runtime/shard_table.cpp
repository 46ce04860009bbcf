// See shard_table.h.
#include "backend/cpu/runtime/shard_table.h"

#include <algorithm>

#include "assay/error.h"

namespace assay::backend::cpu {
namespace {

void meet(base::Barrier& barrier) {
  if (!barrier.wait()) throw Error(Errc::device, "another device of the model failed");
}

}  // namespace

void ShardTable::gather(int i_shard, const tensor::ConstMat& x, int64_t column, const tensor::Mat& y) {
  offered_[static_cast<size_t>(i_shard)] = {x, column};
  meet(barrier_);
  for (const Offer& offer : offered_) {
    for (int64_t t = 0; t < y.rows; ++t) std::copy_n(offer.x.row(t), offer.x.cols, y.row(t) + offer.column);
  }
  meet(barrier_);  // nobody writes over what another still reads
}

}  // namespace assay::backend::cpu
