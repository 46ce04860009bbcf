// Nemotron 3 Nano and Super: Nemotron-H with experts.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId nemotron_h_moe(const ArchInput& input, PlanBuilder& p) { return nemotron_h(input, p); }

}  // namespace assay::model::arch
