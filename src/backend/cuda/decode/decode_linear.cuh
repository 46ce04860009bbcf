// The kernel of decode.h for weights in blocks of 32 and floats. A block of threads per multiprocessor; its warps fetch
// weights before the kernel waits for the one ahead of it: the memory works while the chain of dependent kernels has
// its latency. One kernel serves a model's products with a gate and without, long ones and short ones: what runs after
// the wait lies in the caches of instructions from the product before (two kernels in turns cost a token a tenth of its
// time).
#pragma once

#include "backend/cuda/decode/decode_launch.cuh"
#include "backend/cuda/decode/decode_ring.cuh"

namespace assay::backend::cuda {

template <class Shared_, class... F>
struct DecodeFormats : FormatList<F...> {
  using Shared = Shared_;
  static constexpr bool kHasScales = ((F::kScaleBytes > 0) || ...);
  static int block_bytes(int format) {
    int bytes = 0;
    DecodeFormats::visit(format, [&]<class One>(One) { bytes = One::kBlockBytes + One::kScaleBytes; });
    return bytes;
  }
  // The parts of a unit's halves in slots for so many blocks of a row.
  static void cut(const Parts& first, const Parts& second, int n_of_slot, int n_of_row, DecodeLinear& linear) {
    DecodeFormats::visit(linear.format,
                         [&]<class One>(One) { cut_as<One>(first, second, n_of_slot, n_of_row, linear); });
  }

 private:
  template <class One>
  static void cut_as(const Parts& first, const Parts& second, int n_of_slot, int n_of_row, DecodeLinear& linear) {
    constexpr int kHalf = Shared::kRows / 2;
    const bool is_pair = linear.rows_of_one == kHalf;
    const int rows = std::min(linear.n_rows, linear.rows_of_one),
              halves[2] = {std::min(rows, kHalf), is_pair ? std::min(rows, kHalf) : rows - kHalf};
    const auto part_of = [&](int i, int block_bytes, int stride) {
      const int row = n_of_row * block_bytes;
      DecodePart to{{first.base[i], second.base[i]}, block_bytes, stride, {}, {}};
      if (!is_pair && rows > kHalf) to.base[1] += kHalf * row;
      for (int h = 0; h < 2; ++h)
        to.next_row[h] = halves[h] > 1 ? row : 0, to.half_bytes[h] = std::max(halves[h], 1) * row;
      return to;
    };
    linear.weights =
        part_of(One::kWeightsPart, One::kBlockBytes, row_stride_of(n_of_slot * One::kBlockBytes, One::kSkew));
    linear.scales = part_of(One::kScalesPart, One::kScaleBytes, scales_stride_of(kHalf * n_of_row, One::kScaleBytes));
  }
};

// How a launch is laid out; no bit depends on it.
struct DecodeLayout {
  int shared_bytes;  // of a block, where the device has so much
  int slots_min;     // units come in steps where fewer slots of whole rows would have room
  int depth_max;     // slots of a warp, four at most
};
// By what a multiprocessor has to fetch: little, or more than kFewBytes. What is long streams best through a ring in
// all of the shared memory, with two slots a warp even where these take parts of rows.
struct DecodeLayouts {
  DecodeLayout few, many = {.shared_bytes = 220 * 1024, .slots_min = 16, .depth_max = 4};
};
inline constexpr int64_t kFewBytes = 200 * 1024, kMuchAhead = 64 * 1024;

// kFills: a block has a filler, which is a warp more.
template <class List, class Row, bool kFills>
__global__ void __launch_bounds__((kFills ? kThreadsAsIf : kWalkerThreads), (kFills ? 1 : 2))
    decode_kernel(const __grid_constant__ DecodeTask task) {
  extern __shared__ __align__(128) uint8_t memory[];
  if (task.next_start == NextStart::at_once) let_next_start();
  const int warp = of_warp(static_cast<int>(threadIdx.x) / 32);
  if constexpr (kFills) {
    if (warp == kWalkersMax) return DecodeFill<List>(task, memory).run();
  }
  DecodeFetch<List> fetch(task, memory, warp);
  if constexpr (kFills) {
    fetch.skip(task.depth);
  } else {
    fetch.start();
  }
  const Row x(memory, task.n_blocks);
  DecodeWalk<List, Row> walk(task, memory, fetch, x);

  AheadOfRow<Row, (kFills ? 1 : 2)> ahead(task.source, x);
  auto* floats = reinterpret_cast<float*>(memory + kept(task.floats_begin));
  if (kFills) wait_for_slots(1);
  wait_for_previous();
  if (task.next_start == NextStart::after_wait) let_next_start();
  if (Row::kOfShard) wait_for_shards(task.source.wait);
  ahead.ask();
  make_row(task.source, ahead, floats, x);

  if (kFills && threadIdx.x == 0) row_is_made(task, memory) = 1;
  walk.run(fetch);
  if (Row::kOfShard) tell_shards(task.gate.send, gridDim.x);
}

// Cuts the matrices into slots of so many blocks of each chunk (0: whole rows); the bytes of a slot's weights and of a
// unit's scales.
template <class List>
void cut_slots(DecodeTask& task, std::span<const LinearTask> linears, int step) {
  task.step = step;
  const int longest = longest_chunk(task.n_blocks);
  task.n_steps = step == 0 ? 1 : (longest + step - 1) / step;
  task.slot_bytes = task.scales_stride = 0;
  for (int i = 0; i < task.n_linears; ++i) {
    DecodeLinear& linear = task.linear[i];
    const Parts &first = linears[static_cast<size_t>(i)].w->parts,
                &second = task.gate.y != nullptr ? linears[1].w->parts : first;
    List::cut(first, second, step == 0 ? task.n_blocks : 8 * step, task.n_blocks, linear);
    task.slot_bytes = std::max(task.slot_bytes, List::Shared::kRows * linear.weights.stride);
    task.scales_stride = std::max(task.scales_stride, 2 * linear.scales.stride);
  }
}

// Walkers, steps and slots of blocks that take so many units each, and where they are in a block's shared memory; the
// bytes of it.
template <class List, class Row>
int lay_out(DecodeTask& task, std::span<const LinearTask> linears, const DecodeLayout& layout, int n_blocks,
            int units_each) {
  constexpr int kPast = 32;  // the last slot's end is read past, and not used
  const int longest = longest_chunk(task.n_blocks);
  task.barriers_begin = rounded_to_128(Row::bytes(task.source.d / Row::kBlock));
  task.made_at = task.barriers_begin + 8 * layout.depth_max * kWalkersMax;
  task.floats_begin = rounded_to_128(task.made_at + 4);
  task.ring_begin = task.floats_begin + (task.source.w != nullptr ? row_floats(task.source.d) * 4 : 0);
  const int room = std::min(layout.shared_bytes, shared_of_block()) - task.ring_begin - kPast;
  const int wanted = std::min(units_each, kWalkersMax);
  const auto slots = [&](int walkers) {  // that fit
    if (task.step == 0) return room / (task.slot_bytes + rounded_to_128(task.scales_stride));
    return (room - walkers * 2 * task.scales_stride) / task.slot_bytes;
  };
  cut_slots<List>(task, linears, 0);
  for (int n_parts = 2; slots(wanted) < std::min(2 * wanted, layout.slots_min) && task.step != 1; ++n_parts) {
    cut_slots<List>(task, linears, (longest + n_parts - 1) / n_parts);
  }
  task.n_walkers = std::max(wanted, 1);
  while (task.n_walkers > 1 && slots(task.n_walkers) < task.n_walkers) --task.n_walkers;
  // A walker's scales of the unit after the next one come when its first step has a slot: it must be through with the
  // unit before.
  const int rounds = share_warps<List>(task, n_blocks * task.n_walkers),
            most = task.step == 0 ? rounds : std::min(rounds, 2) * task.n_steps;
  task.depth = std::clamp(slots(task.n_walkers) / task.n_walkers, 1,
                          std::min({most, task.step == 0 ? most : task.n_steps + 1, layout.depth_max}));
  if (task.step == 0) {
    task.scales_begin = task.slot_bytes;
    task.slot_bytes += rounded_to_128(task.scales_stride);
    task.scales_stride = task.slot_bytes;
    return task.ring_begin + task.depth * task.n_walkers * task.slot_bytes + kPast;
  }
  task.scales_begin = task.ring_begin + task.depth * task.n_walkers * task.slot_bytes;
  return task.scales_begin + 2 * task.n_walkers * task.scales_stride + kPast;
}

template <class List, class Row>
DecodeTask decode_task(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate) {
  const int rows_of_one = gate.y != nullptr ? List::Shared::kRows / 2 : List::Shared::kRows;
  auto task = start_task<DecodeTask, List, Row>(source, linears, gate, rows_of_one);
  for (int i = 0; i < task.n_linears; ++i) {
    task.linear[i].rows_of_one = rows_of_one;
    task.linear[i].last_first = std::max(task.linear[i].n_rows - rows_of_one, 0);
  }
  return task;
}

template <class List, class Row>
void launch_decode(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                   const DecodeLayouts& layouts, const Queue& queue) {
  if constexpr (!Row::kOfShard) {
    if (is_of_shard(source, gate)) return launch_decode<List, OfShard<Row>>(source, linears, gate, layouts, queue);
  }
  DecodeTask task = decode_task<List, Row>(source, linears, gate);
  const BlockShares shares = share_blocks<List>(task, queue);
  const DecodeLayout& layout = shares.bytes_each <= kFewBytes ? layouts.few : layouts.many;
  // A long row, as the gate leaves it, is not there at once: where what is fetched ahead of it is much, the next
  // layer's would stand in its way.
  if (reads_gate(source, task) && shares.bytes_each > kMuchAhead) task.next_start = NextStart::after_wait;
  const int bytes = lay_out<List, Row>(task, linears, layout, shares.n_blocks, shares.units_each);
  // A filler is for blocks of 32, whose warps do without the registers that it takes, in narrow models; in wide ones it
  // costs 8 %.
  if constexpr (List::kHasScales && !Row::kOfShard) {
    if (!is_wide(source, task))
      return launch_blocks(decode_kernel<List, Row, true>, shares.n_blocks, kWalkerThreads + 32, bytes, task, queue);
  }
  launch_blocks(decode_kernel<List, Row, false>, shares.n_blocks, kWalkerThreads, bytes, task, queue);
}

using DecodeFormats32 = DecodeFormats<OfChains, DecodeQ4_0, DecodeQ4_1, DecodeQ8_0>;
using DecodeFormatsFloat = DecodeFormats<OfFloats, DecodeF32, DecodeF16, DecodeBF16>;

}  // namespace assay::backend::cuda
