// What a record's check sees of its plan, and how it refuses.
#pragma once

#include <cstdint>
#include <string>

#include "ops/plan/plan.h"

namespace assay::ops {

class CheckScope {
 public:
  CheckScope(const Plan& plan, const Op& op) : plan_(plan), op_(op) {}

  const Plan& plan() const noexcept { return plan_; }
  int64_t width(ValueId id) const { return plan_.values[static_cast<size_t>(id)].width; }
  const RowDomain& domain(ValueId id) const { return plan_.values[static_cast<size_t>(id)].domain; }
  int64_t rows(WeightId id) const { return shape(id).rows(); }
  int64_t cols(WeightId id) const { return shape(id).cols(); }
  int64_t elements(WeightId id) const { return shape(id).elements(); }
  const CacheLayer& cache_layer(int32_t layer) const { return plan_.cache_layers[static_cast<size_t>(layer)]; }
  const StateLayer& state(int32_t id) const { return plan_.states[static_cast<size_t>(id)]; }
  const RopeSpec& rope(RopeId id) const { return plan_.ropes[static_cast<size_t>(id)]; }

  // Error(unsupported), with the op's name.
  [[noreturn]] void refuse(const std::string& what) const;
  void expect(int64_t found, int64_t needed, const char* what) const;
  void expect_rows(ValueId id, const RowDomain& needed) const;
  void expect_format(WeightId id) const;                               // of a type that weights may have
  void expect_vector(WeightId id, int64_t n, const char* what) const;  // or kNone

 private:
  const tensor::Shape& shape(WeightId id) const { return plan_.weights[static_cast<size_t>(id)].view.shape; }
  const Plan& plan_;
  const Op& op_;
};

}  // namespace assay::ops
