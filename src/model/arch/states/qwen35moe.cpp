// Qwen3.5 and 3.6 with experts: qwen35 with experts by softmax and a shared one behind a sigmoid.
#include "model/arch/states/gated_delta.h"

namespace assay::model::arch {

ops::ValueId qwen35moe(const ArchInput& input, PlanBuilder& p) { return gated_delta_model(input, p, true); }

}  // namespace assay::model::arch
