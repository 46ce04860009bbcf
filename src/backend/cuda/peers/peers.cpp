// See peers.h.
//
// Few rows: memory of every GPU, laid out alike, which the kernels of all GPUs write.
//
//   floats    | y of a gather | y of the next | .. | sums of one token, set 0 | set 1 |
//   flags     | of a gather: who has written its columns there | of the next | ..         a flag is a run's number
//
//   GPU 0: a kernel writes its columns into y of GPU 0, 1, .., then a flag on each; its reader waits for the flags of
//   all on its own GPU. Sums have no flag: each GPU writes its part of a set, and a word that is not there has all bits
//   set. The two sets take turns, since a GPU may begin the next run while another ends this one.
//
// Many rows: every GPU's thread and stream.
//
//   record `ready` -> all threads meet -> wait for the others' `ready` -> copy all columns into the own y
//     -> record `done` -> all threads meet -> wait for the others' `done`: nobody writes over what another still reads
#include "backend/cuda/peers/peers.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "assay/error.h"
#include "base/round_up.h"
#include "ops/linear/gather.h"
#include "ops/linear/linear.h"

namespace assay::backend::cuda {
namespace {

// Lets every device reach the memory of every other; false where one cannot, or where a device is there twice.
bool open_ways(const std::vector<int>& devices) {
  if (std::set<int>(devices.begin(), devices.end()).size() < devices.size()) return false;
  for (const int a : devices) {
    for (const int b : devices) {
      int can = a == b ? 1 : 0;
      if (a != b) check(cudaDeviceCanAccessPeer(&can, a, b), "asking whether GPUs reach one another");
      if (can == 0) return false;
    }
  }
  for (const int a : devices) {
    check(cudaSetDevice(a), "choosing the GPU");
    for (const int b : devices) {
      if (a == b) continue;
      const cudaError_t status = cudaDeviceEnablePeerAccess(b, 0);
      if (status != cudaErrorPeerAccessAlreadyEnabled) check(status, "opening the way between GPUs");
      cudaGetLastError();
    }
  }
  return true;
}

}  // namespace

Peers::Peers(std::vector<int> devices, base::Barrier& barrier)
    : devices_(std::move(devices)), barrier_(barrier), reach_(open_ways(devices_)) {
  for (const int device : devices_) {
    check(cudaSetDevice(device), "choosing the GPU");
    shards_.emplace_back();
  }
}

void Peers::meet() {
  if (!barrier_.wait()) throw Error(Errc::device, "another GPU of the model failed");
}

void Peers::enter(int i_shard, DeviceBuffer floats, DeviceBuffer flags) {
  Shard& shard = shards_[static_cast<size_t>(i_shard)];
  shard.floats = std::move(floats);
  shard.flags = std::move(flags);
}

uint32_t Peers::begin_round(int i_shard) {
  ++shards_[static_cast<size_t>(i_shard)].round;
  meet();
  uint32_t round = 0;  // of the shard that counted most: one that failed may have missed some
  for (const Shard& shard : shards_) round = std::max(round, shard.round);
  meet();
  return shards_[static_cast<size_t>(i_shard)].round = round;
}

bool Peers::all(int i_shard, bool is) {
  shards_[static_cast<size_t>(i_shard)].says = is;
  meet();
  for (const Shard& shard : shards_) is = is && shard.says;
  meet();  // before one says something else
  return is;
}

void Peers::copy_columns(int i_shard, const float* x, int64_t own_width, int64_t column, int64_t width, int64_t n_rows,
                         float* y, cudaStream_t stream) {
  Shard& own = shards_[static_cast<size_t>(i_shard)];
  own.offered = x;
  own.column = column;
  own.width = own_width;
  own.ready.record(stream);
  meet();
  for (const Shard& shard : shards_) {
    if (&shard != &own) shard.ready.hold(stream);
    const auto bytes = [](int64_t n) { return static_cast<size_t>(n) * sizeof(float); };
    check(cudaMemcpy2DAsync(y + shard.column, bytes(width), shard.offered, bytes(shard.width), bytes(shard.width),
                            static_cast<size_t>(n_rows), cudaMemcpyDefault, stream),
          "copying from GPU to GPU");
  }
  own.done.record(stream);
  meet();
  for (const Shard& shard : shards_) {  // nobody writes over what another still reads
    if (&shard != &own) shard.done.hold(stream);
  }
}

void Peers::fill(GatherTask& task, int i_shard, int64_t y_offset, int64_t flags_offset) const {
  task.n_shards = n_shards();
  task.i_shard = i_shard;
  for (size_t i = 0; i < shards_.size(); ++i) {
    task.y[i] = shards_[i].floats.as<float>() + y_offset;
    task.flags[i] = shards_[i].flags.as<uint32_t>() + flags_offset;
  }
}

Landings::Landings(const ops::Plan& plan, std::span<const int32_t> column_linears, Peers* peers, int i_shard,
                   int64_t n_rows_max)
    : plan_(&plan), peers_(peers), i_shard_(i_shard), n_rows_max_(n_rows_max) {
  if (peers == nullptr || !peers->reach_one_another()) return;
  offsets_.assign(plan.values.size(), -1);
  flag_offsets_.assign(plan.values.size(), -1);
  sums_offsets_.assign(plan.values.size(), -1);
  int64_t n_floats = 0, n_words = 0;
  for (const ops::Op& op : plan.ops) {
    const auto* gather = op.as<ops::Gather>();
    if (gather == nullptr) continue;
    offsets_[static_cast<size_t>(gather->y)] = n_floats;
    flag_offsets_[static_cast<size_t>(gather->y)] = n_words;
    n_floats += base::round_up(plan.values[static_cast<size_t>(gather->y)].width * n_rows_max, 64);
    n_words += kGatherFlags;
  }
  sums_begin_ = n_floats;
  n_floats = 0;
  for (const int32_t linear : column_linears) {
    const ops::ValueId part = plan.ops[static_cast<size_t>(linear)].get<ops::Linear>().y;
    for (const ops::Op& op : plan.ops) {
      const auto* gather = op.as<ops::Gather>();
      if (gather == nullptr || gather->x != part) continue;
      sums_offsets_[static_cast<size_t>(gather->y)] = n_floats;
      n_floats += base::round_up(plan.values[static_cast<size_t>(gather->y)].width * peers->n_shards(), 64);
    }
  }
  set_floats_ = n_floats;
  DeviceBuffer floats(static_cast<size_t>(sums_begin_ + 2 * set_floats_) * sizeof(float), "the rows from other GPUs");
  DeviceBuffer flags(static_cast<size_t>(n_words) * sizeof(uint32_t), "the flags of other GPUs");
  timed_out_ = PinnedBuffer(sizeof(uint32_t), "the flags of other GPUs");
  *timed_out_.as<uint32_t>() = 0;
  check(cudaMemset(flags.data(), 0, flags.size()), "clearing flags");
  check(cudaDeviceSynchronize(), "clearing flags");
  floats_ = floats.as<float>();
  flags_ = flags.as<uint32_t>();
  bytes_ = floats.size() + flags.size();
  peers->enter(i_shard, std::move(floats), std::move(flags));
}

GatherTask Landings::task(const ops::Gather& gather, const uint32_t* round) const {
  const auto y = static_cast<size_t>(gather.y);
  GatherTask task;
  peers_->fill(task, i_shard_, offsets_[y], flag_offsets_[y]);
  task.column = static_cast<int32_t>(gather.column);
  task.round = round;
  task.timed_out = timed_out_.as<uint32_t>();
  task.arrived = flags_ + flag_offsets_[y] + kArrivedWord;
  return task;
}

ShardWait Landings::wait(const ops::Gather& gather, const uint32_t* round) const {
  const int64_t offset = flag_offsets_[static_cast<size_t>(gather.y)];
  return {flags_ + offset, round, timed_out_.as<uint32_t>(), peers_->n_shards(), i_shard_};
}

ShardSums Landings::sums(const ops::Gather& gather) const {
  if (sums_offsets_[static_cast<size_t>(gather.y)] < 0) return {};
  const int64_t width = plan_->values[static_cast<size_t>(gather.y)].width;
  return {floats_ + sums_place(gather.y), timed_out_.as<uint32_t>(), peers_->n_shards(), static_cast<int32_t>(width)};
}

SumsTask Landings::send_sums(const ops::Gather& gather) const {
  SumsTask task;
  task.n_shards = peers_->n_shards();
  const ShardSums own = sums(gather);
  for (int i = 0; i < task.n_shards; ++i) {
    task.to[i] = peers_->place(i, sums_place(gather.y) + int64_t{i_shard_} * own.width);
  }
  return task;
}

SumsWords Landings::sums_of_run() const noexcept {
  return {reinterpret_cast<uint4*>(floats_ + sums_begin_ + set_ * set_floats_), set_floats_ / 4};
}

void Landings::clear_sums(cudaStream_t stream) const {
  if (set_floats_ == 0) return;
  static_assert(kNoSum == 0xFFFFFFFF);
  check(cudaMemsetAsync(sums_of_run().begin, 0xFF, static_cast<size_t>(set_floats_) * sizeof(float), stream),
        "clearing sums");
}

void Landings::make_ready() {
  if (*timed_out_.as<uint32_t>() != 0) is_clear_ = false;  // of a run that nobody asked for
  *timed_out_.as<uint32_t>() = 0;
  if (peers_->all(i_shard_, is_clear_)) return;
  for (int i = 0; i < 2; ++i, turn()) clear_sums(nullptr);
  check(cudaDeviceSynchronize(), "clearing sums");
}

void Landings::begin_run(uint32_t round) {
  is_clear_ = false;
  set_ = static_cast<int>(round % 2);
}

void Landings::end_run(bool has_outputs) {
  if (*timed_out_.as<uint32_t>() != 0) {
    throw Error(Errc::device, "a GPU waited " + std::to_string(static_cast<int>(kGatherSeconds)) +
                                  " s for the rows of the others, in vain");
  }
  is_clear_ = has_outputs;
}

}  // namespace assay::backend::cuda
