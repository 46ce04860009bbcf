// The CUDA executor: takes memory for everything once, then queues the plan's steps for every batch on one stream.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "assay/error.h"
#include "backend/cuda/attention.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/kv_cache.h"
#include "backend/cuda/linear.h"
#include "backend/cuda/row_kernels.h"
#include "ops/batch_shape.h"
#include "ops/buffer_plan.h"
#include "ops/op_values.h"
#include "ops/plan_check.h"
#include "ops/rope_table.h"
#include "quant/activations.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;

constexpr int64_t kSplitTokensMax = 8;       // up to here a query's segments are worked on side by side
constexpr int64_t kRopeStep = 256;           // positions whose rotations are made at a time
constexpr size_t kPanelBytesMax = 256 << 20; // of weights decoded at a time in mode f32

// One op of the plan, or (op == kNone) the quantising of a value for the linears that follow.
struct Step {
  int32_t op = kNone;
  int32_t quantised = kNone;  // what it makes, or what a linear reads
};

struct QuantisedValue {
  ops::ValueId x = kNone;
  quant::Activation kind = quant::Activation::a32;
  int32_t first_step = 0, last_step = 0;
};

class CudaExecutor final : public ops::Executor {
 public:
  CudaExecutor(const ops::Plan& plan, const ops::ExecutorOptions& options)
      : plan_(plan),
        options_((ops::check_plan(plan, options), options)),
        weights_(plan, options.weights_as_f32, stream_.get()),
        cache_(plan.cache_layers, options),
        n_positions_(static_cast<size_t>(options.n_sequences), 0) {
    shape_.reserve(options);
    make_steps();
    place_values();
    place_tables();
    logits_host_ = PinnedBuffer(static_cast<size_t>(options.n_outputs_max * plan.vocab_size) * sizeof(float), "the logits");
  }

  void run(const ops::Batch& batch) override {
    ops::check_batch(batch, options_, n_positions_, shape_);
    if (batch.tokens.empty()) return;
    send_batch(batch);
    for (const Step& step : steps_) {
      launch(step);
      if (observer_ != nullptr && step.op != kNone) [[unlikely]] announce(step.op);
    }
    const size_t bytes = shape_.selected.size() * static_cast<size_t>(plan_.vocab_size) * sizeof(float);
    if (bytes > 0) {
      check(cudaMemcpyAsync(logits_host_.data(), value(plan_.logits), bytes, cudaMemcpyDeviceToHost, stream_.get()), "reading logits");
    }
    check(cudaGetLastError(), "starting kernels");
    stream_.wait();
    n_positions_ = shape_.n_positions;
  }

  std::span<const float> logits(int64_t i_output) const override {
    return {logits_host_.as<const float>() + i_output * plan_.vocab_size, static_cast<size_t>(plan_.vocab_size)};
  }
  void read_logits(int64_t i_output, std::span<double> out) const override {
    const std::span<const float> row = logits(i_output);
    std::copy(row.begin(), row.end(), out.begin());
  }
  void truncate(int sequence, int64_t n_positions) override {
    ops::check_sequence(sequence, options_);
    int64_t& kept = n_positions_[static_cast<size_t>(sequence)];
    kept = std::clamp<int64_t>(n_positions, 0, kept);
  }
  int64_t n_positions(int sequence) const override {
    ops::check_sequence(sequence, options_);
    return n_positions_[static_cast<size_t>(sequence)];
  }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    cache_.visit(sequence, n_positions(sequence), sink);
  }
  void set_observer(ops::OpObserver* observer) override { observer_ = observer; }
  size_t cache_bytes() const override { return cache_.bytes(); }
  size_t arena_bytes() const override {
    size_t bytes = arena_.size() + partials_.size() + panel_.size() + batch_device_.size() + logits_host_.size();
    for (const DeviceBuffer& table : rope_device_) bytes += table.size();
    return bytes;
  }

 private:
  template <class Record>
  const Record& record(int32_t op) const {
    return std::get<Record>(plan_.ops[static_cast<size_t>(op)].record);
  }
  float* value(ops::ValueId id) const { return values_[static_cast<size_t>(id)]; }
  int64_t width(ops::ValueId id) const { return plan_.values[static_cast<size_t>(id)].width; }
  int64_t n_rows(ops::ValueId id) const {
    return plan_.values[static_cast<size_t>(id)].outputs_only ? static_cast<int64_t>(shape_.selected.size()) : n_tokens_;
  }
  int64_t rows_max(ops::ValueId id) const {
    return plan_.values[static_cast<size_t>(id)].outputs_only ? options_.n_outputs_max : options_.n_batch_max;
  }

  // The plan's order, with a quantising step before the first linear that needs it.
  void make_steps() {
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      Step step{static_cast<int32_t>(i), kNone};
      if (const auto* linear = std::get_if<ops::Linear>(&plan_.ops[i].record)) {
        const quant::Activation kind = quant::find_format(plan_.weights[static_cast<size_t>(linear->w)].view.dtype)->activation;
        if (!options_.weights_as_f32 && kind != quant::Activation::f32) step.quantised = quantised_twin(linear->x, kind);
      }
      if (step.quantised != kNone) quantised_[static_cast<size_t>(step.quantised)].last_step = static_cast<int32_t>(steps_.size());
      steps_.push_back(step);
    }
  }

  int32_t quantised_twin(ops::ValueId x, quant::Activation kind) {
    for (size_t i = 0; i < quantised_.size(); ++i) {
      if (quantised_[i].x == x && quantised_[i].kind == kind) return static_cast<int32_t>(i);
    }
    const auto id = static_cast<int32_t>(quantised_.size());
    quantised_.push_back({x, kind, static_cast<int32_t>(steps_.size()), static_cast<int32_t>(steps_.size())});
    steps_.push_back({kNone, id});
    return id;
  }

  // Values and their quantised twins share one arena; who is read no more gives its place to who comes later.
  void place_values() {
    struct Wanted {
      ops::BufferNeed need;
      ops::ValueId value = kNone;
      int32_t quantised = kNone;
    };
    std::vector<ops::BufferNeed> lives(plan_.values.size());
    for (size_t s = 0; s < steps_.size(); ++s) {
      const auto now = static_cast<int32_t>(s);
      if (steps_[s].op == kNone) {
        lives[static_cast<size_t>(quantised_[static_cast<size_t>(steps_[s].quantised)].x)].last_step = now;
        continue;
      }
      const ops::OpValues values = ops::values_of(plan_.ops[static_cast<size_t>(steps_[s].op)]);
      for (const ops::ValueId x : values.inputs) lives[static_cast<size_t>(x)].last_step = now;
      if (values.output != kNone) lives[static_cast<size_t>(values.output)].first_step = lives[static_cast<size_t>(values.output)].last_step = now;
    }
    std::vector<Wanted> wanted;
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const auto id = static_cast<ops::ValueId>(i);
      lives[i].bytes = static_cast<size_t>(rows_max(id) * width(id)) * sizeof(float);
      if (id == plan_.logits) lives[i].last_step = static_cast<int32_t>(steps_.size());
      wanted.push_back({lives[i], id, kNone});
    }
    for (size_t i = 0; i < quantised_.size(); ++i) {
      const QuantisedValue& q = quantised_[i];
      const size_t bytes = quant::activations_bytes(q.kind, options_.planes, rows_max(q.x), width(q.x));
      wanted.push_back({{bytes, q.first_step, q.last_step, kNone}, kNone, static_cast<int32_t>(i)});
    }
    std::stable_sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) { return a.need.first_step < b.need.first_step; });
    std::vector<ops::BufferNeed> needs;
    for (const Wanted& w : wanted) needs.push_back(w.need);
    const ops::BufferPlan placed = ops::place_buffers(needs, 256);
    arena_ = DeviceBuffer(placed.bytes, "the activations of " + std::to_string(options_.n_batch_max) + " tokens");
    values_.resize(plan_.values.size());
    activations_.resize(quantised_.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      std::byte* at = arena_.data() + placed.offsets[i];
      if (wanted[i].value != kNone) {
        values_[static_cast<size_t>(wanted[i].value)] = reinterpret_cast<float*>(at);
      } else {
        const QuantisedValue& q = quantised_[static_cast<size_t>(wanted[i].quantised)];
        activations_[static_cast<size_t>(wanted[i].quantised)] = quant::carve(q.kind, options_.planes, rows_max(q.x), width(q.x), at);
      }
    }
  }

  void place_tables() {
    for (const ops::RopeSpec& spec : plan_.ropes) {
      rope_tables_.emplace_back(spec, options_.n_ctx);
      rope_device_.emplace_back(static_cast<size_t>(options_.n_ctx * spec.dim) * sizeof(float), "the table of rotations");
    }
    const auto n = static_cast<size_t>(options_.n_batch_max);
    // tokens, positions, sequences, selected, then the tiles: at most one a token.
    const size_t bytes = 4 * n * sizeof(int32_t) + n * sizeof(TokenTile);
    batch_host_ = PinnedBuffer(bytes, "the batch");
    batch_device_ = DeviceBuffer(bytes, "the batch");
    size_t partials = 0, panel = 0;
    const int64_t n_segments = (options_.n_ctx + ops::kAttentionSegment - 1) / ops::kAttentionSegment;
    for (const ops::Op& op : plan_.ops) {
      if (const auto* attention = std::get_if<ops::Attention>(&op.record)) {
        if (attention->head_dim > kHeadDimMax) {
          throw Error(Errc::unsupported, op.name + ": heads of " + std::to_string(attention->head_dim) + " elements; the CUDA backend serves up to " +
                                             std::to_string(kHeadDimMax) + ", --backend cpu any");
        }
        const int64_t floats = std::min(options_.n_batch_max, kSplitTokensMax) * attention->n_heads * n_segments * (attention->head_dim + 2);
        partials = std::max(partials, static_cast<size_t>(floats) * sizeof(float));
      }
      const auto* linear = std::get_if<ops::Linear>(&op.record);
      if (linear == nullptr || !decodes(weights_.matrix(linear->w))) continue;
      const Matrix& w = weights_.matrix(linear->w);
      panel = std::max(panel, static_cast<size_t>(w.rows * w.cols) * sizeof(float));
      panel_row_bytes_ = std::max(panel_row_bytes_, static_cast<size_t>(w.cols) * sizeof(float));
    }
    partials_ = DeviceBuffer(partials, "scratch memory of attention");
    panel_ = DeviceBuffer(std::max(std::min(panel, kPanelBytesMax), panel_row_bytes_), "weights decoded to f32");
  }

  // Whether a matrix is multiplied as floats that must first be decoded.
  bool decodes(const Matrix& w) const {
    return options_.weights_as_f32 && quant::find_format(w.dtype)->activation != quant::Activation::f32;
  }

  void send_batch(const ops::Batch& batch) {
    n_tokens_ = static_cast<int64_t>(batch.tokens.size());
    const auto capacity = static_cast<size_t>(options_.n_batch_max);
    auto* host = batch_host_.as<int32_t>();
    const auto n = static_cast<size_t>(n_tokens_);
    std::copy_n(batch.tokens.begin(), n, host);
    std::copy_n(batch.positions.begin(), n, host + capacity);
    if (batch.sequences.empty()) {
      std::fill_n(host + 2 * capacity, n, 0);
    } else {
      std::copy_n(batch.sequences.begin(), n, host + 2 * capacity);
    }
    std::transform(shape_.selected.begin(), shape_.selected.end(), host + 3 * capacity, [](int64_t t) { return static_cast<int32_t>(t); });
    auto* tiles = reinterpret_cast<TokenTile*>(host + 4 * capacity);
    const int64_t per_tile = n_tokens_ <= kSplitTokensMax ? 1 : kTileTokens;
    n_tiles_ = 0;
    for (const ops::TokenRun& run : shape_.token_runs) {
      for (int64_t i = 0; i < run.n; i += per_tile) {
        tiles[n_tiles_++] = {static_cast<int32_t>(run.begin + i), static_cast<int32_t>(std::min(per_tile, run.n - i)),
                             static_cast<int32_t>(run.sequence), static_cast<int32_t>(run.position + i)};
      }
    }
    const size_t bytes = 4 * capacity * sizeof(int32_t) + static_cast<size_t>(n_tiles_) * sizeof(TokenTile);
    check(cudaMemcpyAsync(batch_device_.data(), batch_host_.data(), bytes, cudaMemcpyHostToDevice, stream_.get()), "sending the batch");
    const int64_t last = *std::max_element(shape_.n_positions.begin(), shape_.n_positions.end());
    fill_rope_tables(last);
  }

  void fill_rope_tables(int64_t n_positions) {
    if (n_positions <= n_rotations_) return;
    const int64_t target = std::min(options_.n_ctx, (n_positions + kRopeStep - 1) / kRopeStep * kRopeStep);
    for (size_t i = 0; i < rope_tables_.size(); ++i) {
      ops::RopeTable& table = rope_tables_[i];
      table.fill_to(target);
      const int64_t dim = table.spec().dim;
      check(cudaMemcpyAsync(rope_device_[i].as<float>() + n_rotations_ * dim, table.cos(n_rotations_),
                            static_cast<size_t>((target - n_rotations_) * dim) * sizeof(float), cudaMemcpyHostToDevice, stream_.get()),
            "sending rotations");
    }
    n_rotations_ = target;
  }

  const int32_t* batch_part(int64_t i) const { return batch_device_.as<const int32_t>() + i * options_.n_batch_max; }
  const int32_t* tokens() const { return batch_part(0); }
  const int32_t* positions() const { return batch_part(1); }
  const int32_t* sequences() const { return batch_part(2); }
  const int32_t* selected() const { return batch_part(3); }
  const TokenTile* tiles() const { return reinterpret_cast<const TokenTile*>(batch_part(4)); }

  void launch(const Step& step) {
    if (step.op == kNone) {
      const QuantisedValue& q = quantised_[static_cast<size_t>(step.quantised)];
      quantise_rows(value(q.x), n_rows(q.x), activations_[static_cast<size_t>(step.quantised)], stream_.get());
      return;
    }
    const ops::Op& op = plan_.ops[static_cast<size_t>(step.op)];
    if (const auto* linear = std::get_if<ops::Linear>(&op.record)) {
      launch_linear(*linear, step);
    } else {
      std::visit([this](const auto& r) { launch_record(r); }, op.record);
    }
  }

  void launch_linear(const ops::Linear& r, const Step& step) {
    const Matrix& w = weights_.matrix(r.w);
    const float* bias = r.bias == kNone ? nullptr : weights_.small(r.bias);
    const int64_t n = n_rows(r.y);
    if (step.quantised != kNone) {
      const quant::Activations& x = activations_[static_cast<size_t>(step.quantised)];
      if (!linear_gemv(w, x, n, bias, value(r.y), stream_.get())) linear_any_format(w, x, n, bias, value(r.y), stream_.get());
    } else if (!decodes(w)) {
      linear_float(w, value(r.x), n, bias, value(r.y), stream_.get());
    } else {
      const auto panel_rows = static_cast<int64_t>(panel_.size() / (static_cast<size_t>(w.cols) * sizeof(float)));
      for (int64_t row = 0; row < w.rows && n > 0; row += panel_rows) {
        const int64_t rows = std::min(panel_rows, w.rows - row);
        decode_rows(w, row, rows, panel_.as<float>(), stream_.get());
        linear_decoded(panel_.as<float>(), rows, w.cols, value(r.x), n, bias == nullptr ? nullptr : bias + row, value(r.y) + row, w.rows,
                       stream_.get());
      }
    }
  }

  void launch_record(const ops::Embed& r) {
    embed(weights_.matrix(r.table), tokens(), n_tokens_, static_cast<float>(r.scale), value(r.y), stream_.get());
  }
  void launch_record(const ops::RmsNorm& r) {
    rms_norm(value(r.x), weights_.small(r.w), r.eps, r.d, n_rows(r.y) * (width(r.x) / r.d), value(r.y), stream_.get());
  }
  void launch_record(const ops::Rope& r) {
    const ops::RopeSpec& spec = plan_.ropes[static_cast<size_t>(r.rope)];
    rope(value(r.x), rope_device_[static_cast<size_t>(r.rope)].as<const float>(), positions(), n_rows(r.y),
         {r.n_heads, r.head_dim, spec.dim, spec.interleaved}, value(r.y), stream_.get());
  }
  void launch_record(const ops::KvStore& r) {
    kv_store(cache_.layer(r.layer), value(r.k), value(r.v), positions(), sequences(), n_tokens_, stream_.get());
  }
  void launch_record(const ops::Attention& r) {
    AttentionTask task;
    task.cache = cache_.layer(r.layer);
    task.q = value(r.q);
    task.y = value(r.y);
    task.n_heads = r.n_heads;
    task.window = r.window;
    task.scale = static_cast<float>(r.scale);
    task.tiles = tiles();
    task.n_tiles = n_tiles_;
    task.partials = partials_.as<float>();
    for (const ops::TokenRun& run : shape_.token_runs) {
      const int64_t first = ops::first_visible(run.position, r.window) / ops::kAttentionSegment;
      task.n_segments = std::max(task.n_segments, (run.position + run.n - 1) / ops::kAttentionSegment - first + 1);
    }
    n_tokens_ <= kSplitTokensMax ? attention_split(task, stream_.get()) : attention_tiles(task, stream_.get());
  }
  void launch_record(const ops::Add& r) { add(value(r.a), value(r.b), n_rows(r.y) * width(r.y), value(r.y), stream_.get()); }
  void launch_record(const ops::Gate& r) {
    gate(value(r.gate), value(r.up), r.activation, n_rows(r.y) * width(r.y), value(r.y), stream_.get());
  }
  void launch_record(const ops::SelectOutputs& r) {
    select_rows(value(r.x), selected(), static_cast<int64_t>(shape_.selected.size()), width(r.x), value(r.y), stream_.get());
  }
  void launch_record(const ops::Linear&) {}  // launch_linear

  void announce(int32_t i_op) {
    const ops::Op& op = plan_.ops[static_cast<size_t>(i_op)];
    const ops::ValueId id = ops::announced_value(op);
    if (n_rows(id) == 0 || !observer_->wants(op)) return;
    stream_.wait();
    std::vector<float> floats(static_cast<size_t>(n_rows(id) * width(id)));
    check(cudaMemcpy(floats.data(), value(id), floats.size() * sizeof(float), cudaMemcpyDeviceToHost), "reading a value");
    observed_.assign(floats.begin(), floats.end());
    observer_->on_op(op, n_rows(id), width(id), observed_);
  }

  const ops::Plan& plan_;
  const ops::ExecutorOptions options_;
  Stream stream_;
  DeviceWeights weights_;
  KvCache cache_;
  std::vector<Step> steps_;
  std::vector<QuantisedValue> quantised_;
  std::vector<float*> values_;                      // per value of the plan, on the device
  std::vector<quant::Activations> activations_;     // per quantised value, on the device
  std::vector<ops::RopeTable> rope_tables_;
  std::vector<DeviceBuffer> rope_device_;
  int64_t n_rotations_ = 0;                         // positions whose rotations are on the device
  DeviceBuffer arena_, partials_, panel_, batch_device_;
  PinnedBuffer batch_host_, logits_host_;
  size_t panel_row_bytes_ = 0;
  ops::BatchShape shape_;
  int64_t n_tokens_ = 0, n_tiles_ = 0;              // of the running batch
  std::vector<int64_t> n_positions_;                // per sequence
  ops::OpObserver* observer_ = nullptr;
  std::vector<double> observed_;
};

}  // namespace

std::unique_ptr<ops::Executor> make_cuda_executor(const ops::Plan& plan, const ops::ExecutorOptions& options, int device) {
  const Devices devices = find_devices();
  if (device < 0 || device >= static_cast<int>(devices.list.size())) {
    throw Error(Errc::device, devices.list.empty() ? devices.why_none
                                                   : "GPU " + std::to_string(device) + " was asked for; this machine has " +
                                                         std::to_string(devices.list.size()));
  }
  check(cudaSetDevice(device), "choosing the GPU");
  return std::make_unique<CudaExecutor>(plan, options);
}

}  // namespace assay::backend::cuda
