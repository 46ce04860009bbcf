// See plan_head.h.
#include "ops/plan/plan_head.h"

#include <algorithm>

#include "assay/error.h"
#include "ops/plan/op_values.h"

namespace assay::ops {

Plan without_head(const Plan& whole) {
  const auto last = std::find_if(whole.ops.begin(), whole.ops.end(),
                                 [&](const Op& op) { return values_of(op).output == whole.hidden; });
  if (whole.hidden == kNone || last == whole.ops.end() ||
      whole.values[static_cast<size_t>(whole.hidden)].domain != RowDomain::outputs) {
    throw Error(Errc::unsupported, "this architecture names no rows of which embeddings could be made");
  }
  Plan plan = whole;
  plan.ops.erase(plan.ops.begin() + (last - whole.ops.begin()) + 1, plan.ops.end());
  plan.values.resize(static_cast<size_t>(whole.hidden) +
                     1);  // values have their numbers in the order of the ops that write them
  plan.logits = kNone;
  return plan;
}

}  // namespace assay::ops
