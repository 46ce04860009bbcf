// Decode with weights in superblocks of 256: the kernel, and how its launches are laid out.
#include "backend/cuda/decode/decode_launch.cuh"
#include "backend/cuda/decode/decode_steps.cuh"

namespace assay::backend::cuda {
namespace {

struct Formats : FormatList<StepQ4_K, StepQ5_K, StepQ6_K> {
  static int slot_bytes(int format) {
    int bytes = 0;
    visit(format, [&]<class F>(F) { bytes = F::kSlot; });
    return bytes;
  }
  static int block_bytes(int format) { return slot_bytes(format) / 32; }
};

// All products of a model run in one kernel, short ones and long ones: what one of them has run lies in the caches of
// instructions for the next, which gains more than a kernel fit for each would. So what differs goes by the model's
// width.
constexpr int kStepsAhead = 6, kStepsAheadNarrow = 3;
static_assert(kStepsAhead * kWalkersMax <= kStepSlotsMax);
constexpr int kFillersNarrow = 2;

// kTurns: blocks of a row that a warp makes at once; kFillers: as for n_fillers().
template <class Row, int kTurns, int kFillers>
__global__ void __launch_bounds__(kThreadsAsIf, 1) step_kernel(const __grid_constant__ StepTask task) {
  extern __shared__ __align__(128) uint8_t memory[];
  if (task.lets_early) let_next_start();
  const int warp = of_warp(static_cast<int>(threadIdx.x) / 32);
  if (warp >= kWalkersMax) return StepFill<Formats, kFillers>(task, memory).run(warp - kWalkersMax);
  StepWalk<Formats, Row, kFillers> walk(task, memory, warp);

  const Row x(memory, task.n_blocks);
  AheadOfRow<Row, kTurns> ahead(task.source, x);
  auto* floats = reinterpret_cast<float*>(memory + kept(task.floats_begin));
  const auto meet = [&] { Row::meet(task.source); };
  wait_for_previous();
  if (!task.lets_early) let_next_start();
  if (Row::kOfShard) wait_for_shards(task.source.wait, meet);
  ahead.ask();
  if (!Row::kOfShard) walk.ask_residual();
  make_row(task.source, ahead, floats, x);
  if (Row::kOfShard) walk.ask_residual();

  walk.run();
  if (Row::kOfShard) tell_shards(task.gate.send, gridDim.x, meet);
}

template <class Row>
StepTask step_task(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate) {
  auto task = start_task<StepTask, Formats, Row>(source, linears, gate, gate.y != nullptr ? 2 : 4);
  for (uint32_t i = 0; i < 8; ++i) task.begin[i] = i * static_cast<uint32_t>(task.n_blocks) / 8;
  task.is_plain = gate.send.n_shards == 0 && gate.sums.n_shards == 0;
  for (int i = 0; i < task.n_linears; ++i) {
    const Parts& parts = linears[static_cast<size_t>(i)].w->parts;
    StepLinear& linear = task.linear[i];
    std::copy_n(parts.base, parts.n, linear.base);
    task.slot_bytes = std::max(task.slot_bytes, Formats::slot_bytes(linear.format));
    linear.out = gate.y != nullptr ? gate.y : gate.residual != nullptr ? gate.sum : linear.y;
    task.is_plain = task.is_plain && linear.bias == nullptr && linear.out != nullptr &&
                    (linear.y == nullptr || linear.y == linear.out);
  }
  task.floats_begin = rounded_to_128(Row::bytes(source.d / Row::kBlock));
  task.barriers_begin = rounded_to_128(task.floats_begin + (source.w != nullptr ? row_floats(source.d) * 4 : 0));
  task.ring_begin = task.barriers_begin + kStepBarrierBytes;
  return task;
}

// So many warps of a block take units, with slots for their steps in so many bytes; the bytes of a block.
int share_slots(StepTask& task, int n_blocks, int walkers, int depth_max, int shared_bytes) {
  const int n_slots = std::max((shared_bytes - task.ring_begin) / task.slot_bytes, 1);
  task.n_walkers = std::min(walkers, n_slots);
  const int rounds = share_warps<Formats>(task, n_blocks * task.n_walkers),
            deepest = std::min(rounds * longest_chunk(task.n_blocks), depth_max);
  task.depth = std::min(n_slots / task.n_walkers, deepest);
  task.n_deeper = task.depth < deepest ? n_slots % task.n_walkers : 0;
  return task.ring_begin + (task.depth * task.n_walkers + task.n_deeper) * task.slot_bytes;
}

// Of a block, for a product that has so many bytes of weights for each. What is short is fetched before its row is
// there, beside a block of the kernel ahead: of 112 KB two have room (of 113 not always), 130 leave room for one of the
// kernels around a narrow model's gate, 150 for attention. What is long streams through a ring in all of the shared
// memory; but that of a wide model's gate is filled too late to be of use beyond 150, or 140 with two planes, beside
// which attention's output has room; of a shard's, 180 leave room for its half of that.
int shared_for(int64_t bytes_each, bool wide, bool pair, int planes, bool of_shard) {
  if (bytes_each <= 100 * 1024) return 112 * 1024;
  if (!wide && bytes_each <= 200 * 1024) return 130 * 1024;
  if (pair && of_shard) return 180 * 1024;
  if (pair) return (planes == 2 ? 140 : 150) * 1024;
  return (bytes_each <= 128 * 1024 ? 150 : 220) * 1024;
}

// The same of a kernel that adds other shards' sums, or sends its own, but for a wide model's gate: it is short beside
// its wait for those. Of kernels that add, a block takes a little more than half of a multiprocessor, whatever it
// needs, so that no multiprocessor has two while another has none; of those that send, which come between them, so much
// less that both fit.
int shared_between_shards(bool adds) {
  int device = 0, all = 0, reserved = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device);
  const int half = all / 2 - reserved;
  return adds ? half + 2 * 1024 : half - 4 * 1024;
}
constexpr int64_t kBetweenShardsMax = 320 * 1024;  // bytes of weights for each block

template <class Row>
void launch_decode_256(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                       const Queue& queue) {
  if constexpr (!Row::kOfShard) {
    if (is_of_shard(source, gate)) return launch_decode_256<OfShard<Row>>(source, linears, gate, queue);
  }
  StepTask task = step_task<Row>(source, linears, gate);
  const BlockShares shares = share_blocks<Formats>(task, queue);
  const bool has_norm = source.w != nullptr;
  const bool wide = is_wide(source, task);
  // The next kernel starts when this one's turn has come: with more kernels ahead their copies stand in the way of what
  // this one reads. Only what follows the product of attention's result, the longest of a layer, starts with that,
  // where both have room; and in shards, whose kernels are half as long, every one.
  const bool is_pair = gate.y != nullptr, is_after_pair = reads_gate(source, task);
  task.lets_early = Row::kOfShard || (!wide && !has_norm && !is_after_pair);
  const bool is_longest = is_after_pair || (is_pair && (Row::kOfShard || Row::kPlanes == 1));
  task.n_fillers = !wide ? kFillersNarrow : is_longest ? 4 : Row::kOfShard ? 2 : 3;
  const bool adds_sums = source.sums.n_shards > 0, sends_sums = gate.sums.n_shards > 0;
  const bool is_between = (adds_sums || sends_sums) && shares.bytes_each <= kBetweenShardsMax && !(wide && is_pair);
  const int wanted = is_between ? shared_between_shards(adds_sums)
                                : shared_for(shares.bytes_each, wide, is_pair, Row::kPlanes, Row::kOfShard);
  const int shared = std::min(wanted, shared_of_block());
  const int walkers = std::min(shares.units_each, kWalkersMax);
  const bool is_several =
      !Row::kOfShard && !is_pair && task.n_linears > 1;  // of these each walker's first unit is enough
  const int steps_ahead = !wide        ? kStepsAheadNarrow
                          : is_several ? std::min(longest_chunk(task.n_blocks), kStepsAhead)
                                       : kStepsAhead;
  const int used = share_slots(task, shares.n_blocks, walkers, steps_ahead, shared);
  const int bytes = is_between && adds_sums ? std::max(used, shared) : used;
  const int threads = kWalkerThreads + 32 * task.n_fillers;
  if (wide) return launch_blocks(step_kernel<Row, 2, 0>, shares.n_blocks, threads, bytes, task, queue);
  launch_blocks(step_kernel<Row, 1, kFillersNarrow>, shares.n_blocks, threads, bytes, task, queue);
}

}  // namespace

void decode_linears_256(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                        int planes, const Queue& queue) {
  planes == 2 ? launch_decode_256<RowA256<2>>(source, linears, gate, queue)
              : launch_decode_256<RowA256<1>>(source, linears, gate, queue);
}

}  // namespace assay::backend::cuda
