// What a record sees when its plan is cut into shards (plan_shards.h): which columns of each value the shards have, and
// how to enter its own op into every shard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/plan/plan.h"
#include "ops/plan/plan_shards.h"

namespace assay::ops {

using ColumnRanges = std::vector<ColumnRange>;  // per shard; none: every shard has all columns
ColumnRanges times(ColumnRanges ranges, int64_t factor);

// Which heads each shard has of an attention.
struct HeadRanges {
  ColumnRanges q, kv;  // none: all of them
};

class ShardScope {
 public:
  ShardScope(const Plan& whole, int n_shards);
  std::vector<PlanShard> run();

  const Plan& whole() const noexcept { return whole_; }
  int n_shards() const noexcept { return n_; }
  int64_t width(ValueId id) const { return whole_.values[static_cast<size_t>(id)].width; }

  // What the shards have of a value.
  const ColumnRanges& ranges(ValueId id) const { return ranges_[static_cast<size_t>(id)]; }
  ColumnRanges runs_of(ValueId id, int64_t d) const;  // the same, nothing where a run of d elements is torn
  // A value's number in the shards: as they have it; all its columns, gathered where they are not here; the one or the
  // other.
  ValueId own(ValueId id) const { return own_[static_cast<size_t>(id)]; }
  ValueId whole_of(ValueId id);
  ValueId own_or_whole(ValueId id, const ColumnRanges& ranges) { return ranges.empty() ? whole_of(id) : own(id); }
  ValueId make(ValueId id, const ColumnRanges& ranges);  // the output of the running op

  WeightId whole_weight(WeightId id);
  WeightId weight_rows(WeightId id, const ColumnRanges& ranges);  // rows of a matrix
  WeightId weight_elements(WeightId id,
                           const ColumnRanges& ranges);  // elements of a vector; Error(unsupported) for one in blocks
  // The shards' columns of a product's matrix, where those of x are the contract's chunks of equally many blocks and
  // their rows of y as many; else kNone.
  WeightId weight_columns(WeightId w, ValueId x, bool has_bias);

  const ColumnRanges& rows_of_product() const { return rows_of_[static_cast<size_t>(i_op_)]; }  // of the running op
  const HeadRanges& heads(int32_t layer) const { return heads_[static_cast<size_t>(layer)]; }
  void set_kv_heads(int32_t layer);  // the layer's cache in every shard has its KV heads

  // Enters the running op into every shard, as make_record(i_shard) says; ranges: of the value that it announces.
  template <class Make>
  void enter(const ColumnRanges& ranges, Make&& make_record) {
    for (size_t i = 0; i < shards_.size(); ++i) enter_one(i, ranges, Record(make_record(i)));
  }

 private:
  void find_rows();
  int32_t producer_of(ValueId id) const;
  int32_t product_of(ValueId id, int64_t head_dim) const;
  ValueId add_value(const std::string& name, int64_t whole_width, const ColumnRanges& ranges, RowDomain domain);
  WeightId weight_part(WeightId id, const ColumnRanges& ranges, bool is_vector);
  bool divides_chunks(WeightId w, ValueId x, bool has_bias) const;
  void enter_one(size_t i_shard, const ColumnRanges& ranges, Record record);

  const Plan& whole_;
  const int n_;
  std::vector<PlanShard> shards_;
  int32_t i_op_ = 0;
  std::vector<ColumnRanges> ranges_;   // per value of the whole: what the shards have of it
  std::vector<ValueId> own_;           // ... its number in the shards
  std::vector<ValueId> gathered_;      // ... and that of all its columns, where they were asked for
  std::vector<WeightId> weights_;      // per weight of the whole that the shards have whole
  std::vector<ColumnRanges> rows_of_;  // per op of the whole, if a product
  std::vector<HeadRanges> heads_;      // per layer of the cache
};

}  // namespace assay::ops
