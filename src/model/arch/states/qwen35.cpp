// Qwen3.5 and 3.6, dense: layers by the gated delta rule, every fourth one attention behind a gate. Sections of
// rotations (for pictures) have one position in text and no effect.
#include "model/arch/states/gated_delta.h"

namespace assay::model::arch {

ops::ValueId qwen35(const ArchInput& input, PlanBuilder& p) { return gated_delta_model(input, p, true); }

}  // namespace assay::model::arch
