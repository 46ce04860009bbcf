// Prefill and many sequences, superblock formats, on Hopper: starting the kernel of superblock_multiplier.cuh. Tiles
// that are left over after whole rounds are split by chunks over the multiprocessors.
#include <algorithm>

#include "backend/cuda/decode/superblock_multiplier.cuh"

namespace assay::backend::cuda {
namespace {

using namespace superblocks;

// Whole rounds of tiles for all multiprocessors; of the tiles left over each is split so that the parts go round in the
// least time.
Walk split_evenly(int n_tiles, int n_blocks, int n_processors) {
  // In superblocks of a tile: to leave a part's sums, to read them.
  constexpr double kPut = 0.35, kGet = 1;
  Walk walk;
  const int n_left = n_tiles % n_processors;
  double least = n_blocks;
  for (int parts = 2; parts <= 8 && n_left > 0; parts *= 2) {
    const int rounds = (n_left * parts + n_processors - 1) / n_processors;
    const double cost = rounds * ((n_blocks + parts - 1) / parts + kPut) + kGet;
    if (cost >= least || rounds > kHopperPartsEach) continue;
    least = cost, walk.n_split = n_left, walk.n_parts = parts;
  }
  walk.n_items = n_tiles + walk.n_split * (walk.n_parts - 1);
  return walk;
}

template <class Kind>
void launch_kernel(MmaTasks& tasks, uint32_t second, const Hopper& hopper, const Queue& queue) {
  constexpr int kBytes = Layout<Kind>::kBytes;
  const auto kernel = batch_wgmma_kernel<Kind>;
  GroupMaps maps;
  require(make_maps<Kind>(tasks, second, hopper, maps), "maps of matrices");
  require(allow_shared(kernel, kBytes), "shared memory");
  number_tiles(tasks, Kind::kColumns);
  // Where it pays: blocks of threads with several tiles.
  maps.has_outputs =
      Layout<Kind>::kByCopies && tasks.n_tiles >= 2 * hopper.n_processors && are_outputs_in_pieces(tasks);
  if (maps.has_outputs) require(make_output_maps<Kind::kTokens>(tasks, hopper, maps), "maps of outputs");
  Walk walk = split_evenly(tasks.n_tiles, tasks.n_blocks, hopper.n_processors);
  walk.second = second;
  walk.nodes = reinterpret_cast<float4*>(hopper.parts);
  walk.arrived = hopper.arrived;
  launch(queue, kernel, dim3(static_cast<unsigned>(std::min(walk.n_items, hopper.n_processors))), kGroupsThreads,
         kBytes, tasks, walk, maps, reinterpret_cast<float4*>(hopper.scratch));
}
template <class F, int kPlanes, int kColumns>
void launch_columns(MmaTasks& tasks, uint32_t second, const Hopper& hopper, const Queue& queue) {
  using Single = Kind<F, kPlanes, kColumns, true>;
  Layout<Single>::serves(tasks.n_blocks)
      ? launch_kernel<Single>(tasks, second, hopper, queue)
      : launch_kernel<Kind<F, kPlanes, kColumns, false>>(tasks, second, hopper, queue);
}
template <class F, int kPlanes>
void launch_planes(MmaTasks& tasks, int columns, uint32_t second, const Hopper& hopper, const Queue& queue) {
  columns == 64 ? launch_columns<F, kPlanes, 64>(tasks, second, hopper, queue)
                : launch_columns<F, kPlanes, 128>(tasks, second, hopper, queue);
}
template <class F>
void launch_formats(MmaTasks& tasks, int columns, uint32_t second, const Hopper& hopper, const Queue& queue) {
  tasks.x.planes == 2 ? launch_planes<F, 2>(tasks, columns, second, hopper, queue)
                      : launch_planes<F, 1>(tasks, columns, second, hopper, queue);
}

}  // namespace

void linear_wgmma_256(std::span<const LinearTask> linears, int columns, MmaTasks& tasks, const Hopper& hopper,
                      const Queue& queue) {
  uint32_t of_4 = 0, of_5 = 0, of_6 = 0;
  for (size_t i = 0; i < linears.size(); ++i) {
    const tensor::DType dtype = linears[i].w->dtype;
    (dtype == tensor::DType::Q4_K ? of_4 : dtype == tensor::DType::Q5_K ? of_5 : of_6) |= 1u << i;
  }
  if (of_4 == 0 && of_5 == 0) return launch_formats<Formats<WgmmaQ6_K>>(tasks, columns, 0, hopper, queue);
  const auto run = [&]<class F>(F) { return launch_formats<F>(tasks, columns, F::kMixed ? of_6 : 0, hopper, queue); };
  if (of_5 != 0) return of_6 == 0 ? run(Formats<WgmmaQ5_K>()) : run(Formats<WgmmaQ5_K, WgmmaQ6_K>());
  return of_6 == 0 ? run(Formats<WgmmaQ4_K>()) : run(Formats<WgmmaQ4_K, WgmmaQ6_K>());
}

}  // namespace assay::backend::cuda
