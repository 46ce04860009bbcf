// See links.h.
#include "lower/links.h"

#include "base/index.h"

namespace assay::lower {

Links::Links(const ops::Plan& plan)
    : layer_stored_(plan.ops.size(), ops::kNone), layer_read_(plan.ops.size(), ops::kNone),
      producer_(plan.values.size(), ops::kNone), readers_(plan.values.size()), output_(plan.output()),
      handed_(plan.handed) {
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const ops::Op& op = plan.ops[i];
    const auto id = static_cast<int32_t>(i);
    ops_.push_back(ops::values_of(op));
    if (output(id) != ops::kNone) producer_[at(output(id))] = id;
    for (const ops::ValueId x : inputs(id)) readers_[at(x)].push_back(id);
    (op.record.role() == ops::Role::store ? layer_stored_ : layer_read_)[i] = ops::cache_layer_of(op);
  }
}

}  // namespace assay::lower
