// What a run leaves for its caller: the logits of its outputs, which stay on the device until somebody asks for them,
// and the best of them, which the device writes where the host finds them.
//
//   logits of the plan, or kept ones [2, rows, vocabulary]  --- fetch, some rows at a time -->  logits_host
//   rank_rows, with the words of what is allowed            --- its last writes ------------->  best [2, rows, k]
//
// What is allowed is asked for, and ranked, behind what makes the logits: the host makes masks while the device works.
// Shards alone know it before: their ranking is a part of what they run together.
//
// The best lie in page-locked memory. Of runs that follow one another each leaves both in one of two places, by the
// parity of its positions: they are read while the next one is under way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/rows/allowed.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/device_state.h"
#include "backend/cuda/runtime/graphs.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/plan/executor.h"

namespace assay::backend::cuda {

class RunOutputs {
 public:
  explicit RunOutputs(const DeviceState& state);

  ops::RunSupport supports() const;
  // Whether a run that is asked for so must wait for what is under way before take().
  bool must_settle_for(const ops::RunRequest& request) const;
  // How many of the best logits are asked for, and of which tokens. Graphs that know memory which is given up for more
  // are cleared.
  void take(const ops::RunRequest& request, Graphs& graphs);

  // Of the run at work.
  int64_t n_ranked() const noexcept { return n_ranked_; }
  bool ranks_all() const noexcept { return masks_ == nullptr; }
  bool ranks_late() const noexcept { return masks_ != nullptr && state_.place.peers == nullptr; }  // by rank_allowed()
  bool has_allowed() const noexcept { return !allowed_.empty(); }
  bool keeps() const noexcept { return keeps_; }  // whether its logits and the best of them have one of two places
  bool are_ranked() const noexcept { return n_ranked_ > 0 && !state_.shape.selected.empty(); }

  void forget() noexcept { fetched_.assign(fetched_.size(), 0); }  // the logits of the run before
  void place(std::span<const int32_t> positions, bool keeps);
  void mark_unranked(bool follows) const;  // follows: of the run after the one at work
  void rank(const Queue& queue) const;
  void rank_allowed(const Queue& queue);  // asks what is
  // Whether the best logits of outputs i and on are there; i goes on to the first whose are not.
  bool are_there_from(int64_t& i) const;
  void fail() noexcept { n_ranked_ = 0; }  // what a ranking left half done is cleared before the next one
  void end() noexcept { n_ranked_run_ = n_ranked_; }

  // Of the last run that ended.
  std::span<const float> logits(int64_t i_output) const;
  std::span<const ops::RankedLogit> ranked(int64_t i_output) const;
  int32_t best_of(int64_t i_output) const;  // kNone where there is none

 private:
  int64_t n_rows() const noexcept { return static_cast<int64_t>(state_.shape.selected.size()); }
  int64_t n_wanted(const ops::RunRequest& request) const {
    return request.n_ranked > supports().n_ranked_max ? 0 : request.n_ranked;
  }
  void take_n(int64_t n, Graphs& graphs);
  bool ask_allowed();
  ops::RankedLogit* best_at(int place, int64_t i_output, int64_t n) const;
  void fetch(int64_t i_output) const;

  const DeviceState& state_;
  int64_t n_ranked_ = 0, n_ranked_run_ = 0;  // of the run at work, of the last one that ended
  DeviceBuffer scratch_;
  PinnedBuffer best_;
  ops::OutputMasks* masks_ = nullptr;  // of the run at work, where its best logits are ranked
  AllowedRows allowed_;
  bool keeps_ = false;
  std::vector<int> place_of_;             // of each output: which of the two
  mutable std::vector<uint8_t> fetched_;  // per kRowsFetched rows of logits: whether logits_host has them
};

}  // namespace assay::backend::cuda
