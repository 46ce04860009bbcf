// The CUDA executor: takes memory for everything once, then queues the schedule's groups for every batch on one stream.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/kernel_uses.h"
#include "backend/cuda/rows/next_batch.h"
#include "backend/cuda/rows/row_kernels.h"
#include "backend/cuda/runtime/device_state.h"
#include "backend/cuda/runtime/graphs.h"
#include "backend/cuda/runtime/run_decode.h"
#include "backend/cuda/runtime/run_group.h"
#include "backend/cuda/runtime/run_outputs.h"
#include "backend/cuda/runtime/sequences.h"
#include "ops/plan/op_values.h"

namespace assay::backend::cuda {
namespace {

void check_device(const Devices& devices, int device) {
  if (device >= 0 && device < static_cast<int>(devices.list.size())) return;
  throw Error(Errc::device, devices.list.empty()
                                ? devices.why_none
                                : "GPU " + std::to_string(device) + " was asked for; this machine has " +
                                      std::to_string(devices.list.size()));
}

// Waits for what makes it.
std::vector<double> read_value(const DeviceState& state, ops::ValueId id) {
  state.stream.wait();
  std::vector<float> floats(static_cast<size_t>(state.n_rows(id) * state.width(id)));
  check(cudaMemcpy(floats.data(), state.value(id), floats.size() * sizeof(float), cudaMemcpyDeviceToHost),
        "reading a value");
  return {floats.begin(), floats.end()};
}

constexpr int64_t kLooksPerQuery = 1 << 14, kLooksMax = 1 << 24;  // at the best logits, of some nanoseconds each

// What the device holds of the sequences.
class CudaSequences : public ops::Executor {
 public:
  void truncate(int sequence, int64_t n_positions) override {
    choose_device();
    sequences_.truncate(sequence, n_positions);
  }
  int64_t n_positions(int sequence) const override { return sequences_.n_positions(sequence); }
  ops::CachePages pages() const override { return sequences_.pages(); }
  int64_t n_pages_needed(int sequence, int64_t n_more) const override {
    return sequences_.n_pages_needed(sequence, n_more);
  }
  bool fork(int from, int64_t n_positions, int to) override {
    choose_device();
    settle();
    return sequences_.fork(from, n_positions, to);
  }
  int64_t n_usable(int sequence, int64_t n) const override { return sequences_.n_usable(sequence, n); }
  void forget(int sequence, int64_t begin, int64_t end) override { sequences_.forget(sequence, begin, end); }
  bool holds_window(int sequence, int64_t i_page) const override { return sequences_.holds_window(sequence, i_page); }
  bool read_page(int sequence, int64_t i_page, std::span<std::byte> image) const override {
    base::PendingCopies copies;
    return begin_read_page(sequence, i_page, image, copies) && copies.wait();
  }
  bool append_page(int sequence, int64_t n_positions, std::span<const std::byte> image) override {
    base::PendingCopies copies;
    return begin_append_page(sequence, n_positions, image, copies) && copies.wait();
  }
  bool begin_read_page(int sequence, int64_t i_page, std::span<std::byte> image,
                       base::PendingCopies& copies) const override {
    choose_device();
    return sequences_.begin_read_page(sequence, i_page, image, copies);
  }
  bool begin_append_page(int sequence, int64_t n_positions, std::span<const std::byte> image,
                         base::PendingCopies& copies) override {
    choose_device();
    settle();
    return sequences_.begin_append_page(sequence, n_positions, image, copies);
  }
  bool is_ready(int sequence) const override { return sequences_.is_ready(sequence); }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    choose_device();
    state_.stream.wait();  // the cache is read beside the stream
    sequences_.visit(sequence, sink);
  }
  size_t cache_bytes() const override {
    return state_.cache.bytes() + state_.states.bytes() + state_.borrower->states().bytes();
  }

 protected:
  // The device is the calling thread's.
  CudaSequences(const ops::Plan& plan, const ops::ExecutorOptions& options, int device, const ShardPlace& place)
      : device_(device), state_(plan, options, place), sequences_(state_) {}

  void choose_device() const { check(cudaSetDevice(device_), "choosing the GPU"); }
  virtual void settle() = 0;  // until nothing is under way

  const int device_;
  DeviceState state_;
  Sequences sequences_;
};

class CudaExecutor final : public CudaSequences {
 public:
  CudaExecutor(const ops::Plan& plan, const ops::ExecutorOptions& options, int device, const ShardPlace& place)
      : CudaSequences(plan, options, device, place),
        queue_(state_.stream.get(), state_.card.has_clusters(), state_.card.n_multiprocessors), outputs_(state_) {}

  ~CudaExecutor() override {
    cudaStreamSynchronize(state_.stream.get());
  }  // a run that nobody asked for may be under way

  void run(const ops::Batch& batch) override {
    ops::check_batch(batch, state_.options, sequences_.n_positions(), state_.shape);
    if (!state_.plan.causal) ops::check_whole(state_.shape);
    if (batch.tokens.empty()) return;
    choose_device();
    take_request(batch.request);
    const bool is_under_way =
        on_all_shards(outputs_.ranks_all() && next_.is(batch, [this](int64_t i) { return outputs_.best_of(i); }));
    next_.forget();
    if (!is_under_way) settle();
    outputs_.forget();
    state_.take_batch(batch);
    state_.fill_rope_tables();
    if (state_.borrower->any()) state_.borrower->begin(batch, state_.shape, state_.rope_tables);
    sequences_.begin(is_under_way);
    try {
      run_taken(batch, is_under_way);
    } catch (...) {
      outputs_.fail();
      sequences_.take_back();
      throw;
    }
    sequences_.end();
    outputs_.end();
  }

  // The batch that the state has taken.
  void run_taken(const ops::Batch& batch, bool is_under_way) {
    outputs_.place(batch.positions, outputs_.n_ranked() == 1 && outputs_.ranks_all() && is_graph() &&
                                        state_.keeps_logits() && is_one_each(state_.shape, state_.n_tokens));
    if (!is_under_way) start_run(false);
    if (outputs_.ranks_late()) {
      outputs_.rank_allowed(queue_);
      check(cudaGetLastError(), "ranking logits");
    }
    const bool goes_on = on_all_shards(in_row() && may_go_on() && sequences_.begin_next());
    if (goes_on) start_next(batch);
    wait_for_run();
    is_settled_ = !goes_on;
    if (is_shard() && is_graph()) state_.landings.end_run(!state_.shape.selected.empty());
  }

  std::span<const float> logits(int64_t i_output) const override {
    choose_device();
    return outputs_.logits(i_output);
  }
  void read_logits(int64_t i_output, std::span<double> out) const override {
    std::ranges::copy(logits(i_output), out.begin());
  }
  ops::RunSupport supports() const override { return outputs_.supports(); }
  std::span<const ops::RankedLogit> ranked(int64_t i_output) const override { return outputs_.ranked(i_output); }
  std::span<float> input(int64_t n_tokens) override {
    if (n_tokens < 0 || n_tokens > state_.options.n_batch_max) return {};  // run() says so
    return {state_.input_host.as<float>(), static_cast<size_t>(n_tokens * state_.width(state_.plan.input))};
  }
  std::span<const float> handed() const override {
    return {state_.handed_host.as<const float>(),
            static_cast<size_t>(state_.n_tokens * state_.width(state_.plan.handed))};
  }
  std::vector<ops::KernelUse> kernels_of(int32_t i_op) const override {
    return kernel_uses(state_.plan, state_.schedule, state_.kernels, i_op);
  }
  size_t arena_bytes() const override { return state_.arena_bytes(); }

 private:
  // Before the batch is looked at: a run that was begun ahead is none of what is asked otherwise now.
  void take_request(const ops::RunRequest& request) {
    if (std::exchange(observer_, request.observer) != request.observer) next_.forget();
    follows_best_ = request.follows_best && state_.keeps_logits();
    if (outputs_.must_settle_for(request)) settle();
    outputs_.take(request, graphs_);
  }

  // Queues the batch that the state has taken, or (follows) the one that the run before leaves on the device.
  void start_run(bool follows) {
    is_settled_ = false;
    outputs_.mark_unranked(follows);
    state_.has_token_rows = in_row() && state_.token_table != nullptr;
    if (is_graph()) {
      if (is_shard()) begin_round(follows);
      const bool is_in_row =
          in_row();  // the first of a row of runs is the others' graph, too, with its batch sent apart
      if (is_in_row && !follows) begin_row();
      const auto queue_work = [&](bool recorded) { queue_batch(recorded, !is_in_row); };
      if (is_shard() && is_in_row && !follows) {  // the next one's graph, too (may_go_on)
        state_.landings.turn();
        graphs_.record(key_of(state_.n_segments), state_.stream.get(), queue_work);
        state_.landings.turn();
      }
      const bool from_graph = graphs_.run(key_of(state_.n_segments), state_.stream.get(), queue_work);
      state_.gathers_land = is_shard() && from_graph;  // where the logits are
    } else {
      queue_batch(false, true);
    }
    check(cudaGetLastError(), "starting kernels");
  }

  // Whether the run is one of those that follow one another.
  bool in_row() const { return outputs_.keeps() && follows_best_; }

  GraphKey key_of(int64_t n_segments) const {
    const auto n_rows = static_cast<int64_t>(state_.shape.selected.size());
    const int64_t n_ranked = outputs_.ranks_late() ? 0 : outputs_.n_ranked();
    return {state_.n_tokens,        n_rows,           n_segments, n_ranked,
            outputs_.has_allowed(), outputs_.keeps(), in_row(),   state_.landings.set()};
  }

  // Shards agree on what they begin with, whatever became of one of them in the run before.
  bool on_all_shards(bool is) const { return is_shard() ? state_.place.peers->all(state_.place.i_shard, is) : is; }
  // A run that follows finds its round on the device, counted by the one before.
  void begin_round(bool follows) {
    if (!follows) state_.landings.make_ready();
    const uint32_t round = state_.place.peers->begin_round(state_.place.i_shard);
    if (!follows) state_.set_round(round);
    state_.landings.begin_run(round);
  }
  // Whether the next run can be started behind this one. Shards must have its graph: making one may wait for what is
  // under way, and that for another shard.
  bool may_go_on() const {
    const int64_t n_segments = state_.n_segments_after();
    if (n_segments == 0) return false;
    if (!is_shard()) return true;
    GraphKey next = key_of(n_segments);
    next.set = 1 - next.set;
    return graphs_.knows(next);
  }

  // The run after this one, should it be what the caller said. It writes nothing of what this one leaves to be read:
  // its logits and the best of them have other places, and the positions of the cache that it fills nobody has yet.
  // Counters are zeros again when it ends, as after any run.
  void start_next(const ops::Batch& batch) {
    const int64_t n_segments = std::exchange(state_.n_segments, state_.n_segments_after());
    start_run(true);
    state_.n_segments = n_segments;
    next_.expect_after(batch);
  }

  // What the first of a row of runs is given, and the others find where the run before has left it.
  void begin_row() const {
    state_.send_batch();
    const TokenRows rows = state_.token_rows();
    if (rows.y != nullptr)
      embed(UnpackKernel::eights, rows.table, state_.tokens(), state_.n_tokens, rows.scale, rows.y, queue_);
  }

  void settle() override {
    next_.forget();
    if (!is_settled_) state_.stream.wait();
    is_settled_ = true;
  }

  // Where the best logits are the last that a run writes they are looked for, which shows them sooner than the runtime
  // says that the stream has ended, and while the next run is under way. The stream is asked as well: a kernel that
  // failed never writes them. Of shards only those of runs that may have a next one come after what tells that a wait
  // was too long.
  void wait_for_run() {
    if (!outputs_.are_ranked() || state_.plan.handed != ops::kNone || (is_shard() && !outputs_.keeps()))
      return state_.stream.wait();
    int64_t i = 0;
    for (int64_t n_asked = 0; !outputs_.are_there_from(i); ++n_asked) {
      if (n_asked % kLooksPerQuery != kLooksPerQuery - 1) continue;
      if (n_asked > kLooksMax) return state_.stream.wait();  // a long run: without the processor, where the runtime can
      const cudaError_t status = cudaStreamQuery(state_.stream.get());
      if (status == cudaSuccess) return;
      if (status != cudaErrorNotReady) check(status, "running kernels");
    }
  }

  bool is_shard() const { return state_.place.peers != nullptr; }
  // The gathers of shards are recorded only where they need nothing of the host.
  bool is_graph() const {
    const bool fits = !is_shard() || (!state_.landings.empty() && state_.n_tokens <= state_.landings.n_rows_max());
    return observer_ == nullptr && state_.tokens_alone && fits && !state_.borrower->any();
  }

  // recorded: for a graph. A kernel that waits for another GPU is never queued otherwise: what loads a kernel may wait
  // for those before.
  void queue_batch(bool recorded, bool sends) {
    state_.gathers_land = is_shard() && recorded;
    const Schedule& schedule = state_.schedule;
    const bool observed = observer_ != nullptr;
    Queue queue = queue_;
    // Between copies from other GPUs nothing starts ahead: it might pass the events that these wait for.
    queue.overlap = queue_.overlap && (!is_shard() || recorded);
    if (sends) state_.send_batch();
    state_.send_rows(state_.input_host, state_.plan.input);
    const auto announce_group = [&](const FusionGroup& group) {
      for (const int32_t op : group.ops) announce(state_.plan.ops[static_cast<size_t>(op)]);
    };
    if (state_.n_tokens == 1) {
      for (const DecodeGroup& group : schedule.decode) {
        run_decode_group(state_, group, observed, queue);
        for (size_t i = 0; observed && i < group.members.size(); ++i)
          announce_group(schedule.groups[static_cast<size_t>(group.members[i])]);
      }
    } else {
      for (const FusionGroup& group : schedule.groups) {
        run_group(state_, group, {state_, schedule.read_outside, observed}, queue);
        if (observed) announce_group(group);
      }
    }
    if (!outputs_.ranks_late()) outputs_.rank(queue);
    state_.read_rows(state_.plan.handed, 0, state_.n_tokens, state_.handed_host);
    if (state_.gathers_land && state_.n_tokens == 1 && !outputs_.keeps())
      state_.landings.clear_sums(queue.stream);  // else the ranking does
  }

  void announce(const ops::Op& op) const {
    const ops::ValueId id = ops::announced_value(op);
    if (state_.n_rows(id) > 0 && observer_->wants(op))
      observer_->on_op(op, state_.n_rows(id), state_.width(id), read_value(state_, id));
  }

  Queue queue_;
  Graphs graphs_;
  RunOutputs outputs_;
  bool follows_best_ = false;
  NextBatch next_;                       // where it is under way
  bool is_settled_ = true;               // what was queued has ended, but for a kernel's last instructions
  ops::OpObserver* observer_ = nullptr;  // of the run at work
};

}  // namespace

std::unique_ptr<ops::Executor> make_cuda_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                  int device, const ShardPlace& place) {
  check_device(find_devices(), device);
  check(cudaSetDevice(device), "choosing the GPU");
  return std::make_unique<CudaExecutor>(plan, options, device, place);
}

std::shared_ptr<Peers> make_peers(const std::vector<int>& devices, base::Barrier& barrier) {
  const Devices found = find_devices();
  for (const int device : devices) check_device(found, device);
  return std::make_shared<Peers>(devices, barrier);
}

}  // namespace assay::backend::cuda
