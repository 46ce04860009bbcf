// Qwen3-Next: the gated delta rule whose value heads follow one another by key head, attention behind a gate, experts
// and a shared one.
#include "model/arch/states/gated_delta.h"

namespace assay::model::arch {

ops::ValueId qwen3next(const ArchInput& input, PlanBuilder& p) { return gated_delta_model(input, p, false); }

}  // namespace assay::model::arch
