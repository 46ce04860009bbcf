// Matrix-vector products of the formats with superblocks of 256 by AVX-512 VNNI.
#include "backend/cpu/gemv/gemv.h"
#include "backend/cpu/gemv/gemv_superblocks.h"

namespace assay::backend::cpu {

static_assert(kLanes == kGroups * kGroupLanesAvx512);

GemvKernel gemv_a256_avx512(tensor::DType dtype) noexcept { return superblock_kernel(dtype); }

}  // namespace assay::backend::cpu
