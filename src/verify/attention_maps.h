// The shares of attention in a run, for pictures: from the queries and keys that were observed,
// before the cache's rounding. Sequence 0 only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "assay/verify.h"
#include "ops/attention/attention.h"
#include "ops/plan/plan.h"

namespace assay::verify {

class AttentionMaps {
 public:
  // layers beyond the plan's are left out, and so are repeated ones.
  AttentionMaps(const ops::Plan& plan, std::span<const int32_t> layers);

  // As an observer's; the runs' positions ascend from 0 without a gap.
  bool wants(const ops::Op& op) { return find_layer(op).layer != nullptr; }
  void on_op(const ops::Op& op, std::span<const double> values);
  std::vector<VerifyReport::AttentionMap> maps() const;

 private:
  struct Layer {
    ops::Attention attention;
    ops::ValueId k = ops::kNone;
    std::vector<double> queries, keys;  // of all positions so far
  };
  struct Found {
    Layer* layer = nullptr;
    bool is_key = false;
  };
  Found find_layer(const ops::Op& op);  // which layer's attention reads what the op writes
  static VerifyReport::AttentionMap map_of(const Layer& layer, int64_t n_positions);

  std::vector<Layer> layers_;
};

}  // namespace assay::verify
