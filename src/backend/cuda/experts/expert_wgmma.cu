// Prefill of experts, superblock formats, on Hopper: starting the kernel of superblock_multiplier.cuh over the tiles of
// expert_groups.h. How many there are the device alone knows, so every multiprocessor has a block of threads.
#include "backend/cuda/decode/superblock_multiplier.cuh"

namespace assay::backend::cuda {
namespace {

using namespace superblocks;

template <class Kind>
void launch_experts(MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  constexpr int kBytes = Layout<Kind>::kBytes;
  const auto kernel = batch_wgmma_kernel<Kind>;
  GroupMaps maps;
  require(make_maps<Kind>(tasks, 0, hopper, maps), "maps of matrices");
  require(allow_shared(kernel, kBytes), "shared memory");
  launch(queue, kernel, dim3(static_cast<unsigned>(hopper.n_processors)), kGroupsThreads, kBytes, tasks, Walk(), maps,
         reinterpret_cast<float4*>(hopper.scratch));
}
template <class F, int kPlanes, int kColumns>
void launch_experts_columns(MmaTasks& tasks, const Hopper& hopper, const Queue& queue) {
  using Single = Kind<F, kPlanes, kColumns, true, true>;
  Layout<Single>::serves(tasks.n_blocks)
      ? launch_experts<Single>(tasks, hopper, queue)
      : launch_experts<Kind<F, kPlanes, kColumns, false, true>>(tasks, hopper, queue);
}
template <class F, int kPlanes>
void launch_experts_planes(MmaTasks& tasks, int columns, const Hopper& hopper, const Queue& queue) {
  columns == 64 ? launch_experts_columns<F, kPlanes, 64>(tasks, hopper, queue)
                : launch_experts_columns<F, kPlanes, 128>(tasks, hopper, queue);
}
template <class Format>
void launch_experts_format(MmaTasks& tasks, int columns, const Hopper& hopper, const Queue& queue) {
  using F = Formats<Format>;
  tasks.x.planes == 2 ? launch_experts_planes<F, 2>(tasks, columns, hopper, queue)
                      : launch_experts_planes<F, 1>(tasks, columns, hopper, queue);
}

}  // namespace

void expert_wgmma_256(tensor::DType dtype, MmaTasks& tasks, int columns, const Hopper& hopper, const Queue& queue) {
  if (dtype == tensor::DType::Q4_K) launch_experts_format<WgmmaQ4_K>(tasks, columns, hopper, queue);
  if (dtype == tensor::DType::Q5_K) launch_experts_format<WgmmaQ5_K>(tasks, columns, hopper, queue);
  if (dtype == tensor::DType::Q6_K) launch_experts_format<WgmmaQ6_K>(tasks, columns, hopper, queue);
}

}  // namespace assay::backend::cuda
