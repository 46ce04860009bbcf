// The GPUs of a model's shards (ops/plan/plan_shards.h): what each lets the others reach, and the gathers between them.
// Of few rows a kernel writes into the others' memory (gather.h), where all can reach one another and no GPU is named
// twice (a test's); else every shard copies what the others offer, its stream waiting for theirs, and the runtime takes
// the way through the host where there is no other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/cuda/rows/gather.h"
#include "backend/cuda/runtime/device_memory.h"
#include "base/barrier.h"
#include "ops/linear/gather.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

class Peers {
 public:
  // devices: of each shard; a GPU may be named twice, for copies alone: whole models so had wrong bits. The barrier, of
  // as many threads, must outlive the group.
  Peers(std::vector<int> devices, base::Barrier& barrier);

  int n_shards() const noexcept { return static_cast<int>(devices_.size()); }
  bool reach_one_another() const noexcept { return reach_; }

  // Where the others write for the gathers of few rows: floats and flags, at the same offsets in all shards. Before the
  // first run. The group keeps them until all shards have gone: one may still write when another has failed.
  void enter(int i_shard, DeviceBuffer floats, DeviceBuffer flags);
  // At the start of every run, by every shard's thread: the number of the round, the same for all. Error(device) where
  // another failed.
  uint32_t begin_round(int i_shard);
  // By every shard's thread: whether it is so on all of them.
  bool all(int i_shard, bool is);

  // Of any number of rows, by copies.
  void copy_columns(int i_shard, const float* x, int64_t own_width, int64_t column, int64_t width, int64_t n_rows,
                    float* y, cudaStream_t stream);
  // The task's y and flags of all shards, from their offsets.
  void fill(GatherTask& task, int i_shard, int64_t y_offset, int64_t flags_offset) const;
  float* place(int i_shard, int64_t y_offset) const {
    return shards_[static_cast<size_t>(i_shard)].floats.as<float>() + y_offset;
  }

 private:
  struct Shard {
    DeviceBuffer floats, flags;
    const float* offered = nullptr;
    int64_t column = 0, width = 0;
    uint32_t round = 0;
    bool says = false;
    Event ready, done;  // of the shard's stream
  };
  void meet();

  const std::vector<int> devices_;
  base::Barrier& barrier_;
  bool reach_ = false;
  std::vector<Shard> shards_;
};

// What the gathers of one shard need: memory that the others write into, a place for each gather's value.
class Landings {
 public:
  // Nothing where `peers` is null or its GPUs do not reach one another. column_linears: ops, whose sums all shards are
  // sent.
  Landings(const ops::Plan& plan, std::span<const int32_t> column_linears, Peers* peers, int i_shard,
           int64_t n_rows_max);

  bool empty() const noexcept { return floats_ == nullptr; }
  int64_t n_rows_max() const noexcept { return n_rows_max_; }
  // Of a gather's y; null of other values.
  float* of(ops::ValueId y) const noexcept {
    const int64_t offset = offsets_.empty() ? -1 : offsets_[static_cast<size_t>(y)];
    return offset < 0 ? nullptr : floats_ + offset;
  }
  GatherTask task(const ops::Gather& gather, const uint32_t* round) const;  // less x, widths and rows
  ShardWait wait(const ops::Gather& gather, const uint32_t* round) const;
  // The sums of one token, to be gathered in y: n_shards is 0 where the shards have none.
  ShardSums sums(const ops::Gather& gather) const;
  SumsTask send_sums(const ops::Gather& gather) const;

  // Ahead of a run, by all shards, while none is under way: no sum is there, whatever became of the runs before.
  void make_ready();
  // Around a run of a graph, whose sums have one of two sets of places, by turns: another shard may have begun the next
  // run while this one ends.
  void begin_run(uint32_t round);
  // Error(device) where another GPU did not come. Without outputs a run ends before the last sums are read, and they
  // may come later.
  void end_run(bool has_outputs);
  int set() const noexcept { return set_; }
  void turn() noexcept { set_ = 1 - set_; }  // what is queued from now on has the other set
  // To be set to kNoSum at the end of a run of one token, which has read them: by clear_sums or by a kernel. No shard
  // sends more to this set before it has had sums of the run between, which this shard begins afterwards.
  SumsWords sums_of_run() const noexcept;
  void clear_sums(cudaStream_t stream) const;
  size_t bytes() const noexcept { return bytes_; }

 private:
  const ops::Plan* plan_ = nullptr;
  Peers* peers_ = nullptr;
  int i_shard_ = 0;
  int64_t n_rows_max_ = 0;
  std::vector<int64_t> offsets_;       // per value, -1: none; in floats
  std::vector<int64_t> flag_offsets_;  // ... in words
  std::vector<int64_t> sums_offsets_;  // per value of a gather of sums; in floats, in a set
  int64_t sums_begin_ = 0, set_floats_ = 0;
  int set_ = 0;
  bool is_clear_ = false;  // no sum is there but of runs under way
  int64_t sums_place(ops::ValueId y) const noexcept {
    return sums_begin_ + set_ * set_floats_ + sums_offsets_[static_cast<size_t>(y)];
  }

  float* floats_ = nullptr;  // the group's (Peers::enter)
  uint32_t* flags_ = nullptr;
  size_t bytes_ = 0;
  PinnedBuffer timed_out_;
};

}  // namespace assay::backend::cuda
