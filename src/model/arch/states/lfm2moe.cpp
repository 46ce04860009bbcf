// LFM2 with experts, by sigmoid and a bias for choosing; the first layers are dense.
#include "model/arch/decoder.h"

namespace assay::model::arch {

ops::ValueId lfm2moe(const ArchInput& input, PlanBuilder& p) { return lfm2(input, p); }

}  // namespace assay::model::arch
