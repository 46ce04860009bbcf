// See device_state.h.
#include "backend/cuda/runtime/device_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "assay/error.h"
#include "backend/cuda/decode/fetch_batch.h"
#include "base/round_up.h"
#include "lower/placement.h"
#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan_check.h"

namespace assay::backend::cuda {
namespace {

constexpr int64_t kRopeStep = 256;            // positions whose rotations are made at a time
constexpr size_t kPanelBytesMax = 256 << 20;  // of weights decoded at a time in modes f32 and fast

int64_t segments_of(int64_t n_positions) noexcept {
  return (n_positions + ops::kAttentionSegment - 1) / ops::kAttentionSegment;
}

const ops::ExecutorOptions& checked(const ops::Plan& plan, const ops::ExecutorOptions& options) {
  ops::check_plan(plan, options);
  return options;
}

}  // namespace

DeviceState::DeviceState(const ops::Plan& p, const ops::ExecutorOptions& o, const ShardPlace& shard)
    : plan(p), options(checked(p, o)), card(this_card()), schedule(make_schedule(p, o, card)),
      kernels(p, o, schedule, card), place(shard),
      landings(p, schedule.column_linears, place.peers.get(), place.i_shard, kSplitTokensMax),
      weights(p, o, landings.empty() ? std::span<const int32_t>{} : schedule.column_linears, stream.get()),
      cache(p.cache_layers, o, ops::CacheWindows(p)), borrower(std::make_unique<Borrower>(p, o, schedule)),
      states(ops::states_of(p, [this](int32_t op) { return !borrower->is_borrowed(op); }), o),
      logits_host(bytes_max(p.output()), "the logits"), input_host(bytes_max(p.input), "the rows of the part before"),
      handed_host(bytes_max(p.handed), "the rows for the next part") {
  shape.reserve(o);
  token_table = find_token_table();
  place_values();
  place_tables();
  place_floats();
  hopper = HopperMemory(options.fast || !schedule.twins.list.empty());
  place_halves();
  place_experts();
  const bool is_whole = (place.peers == nullptr || !landings.empty()) && plan.input == ops::kNone &&
                        plan.handed == ops::kNone && plan.logits != ops::kNone &&
                        !borrower->any();  // a reference wants the batch on the host
  if (is_whole)
    kept_logits_ = DeviceBuffer(2 * static_cast<size_t>(n_rows_kept() * plan.vocab_size) * sizeof(float),
                                "the logits of two runs");
  cache.check_room();
}

int64_t DeviceState::rows_max(ops::ValueId id) const noexcept { return lower::rows_max(plan, id, options); }

size_t DeviceState::bytes_max(ops::ValueId id) const noexcept {
  return id == ops::kNone ? 0 : static_cast<size_t>(rows_max(id) * width(id)) * sizeof(float);
}

bool DeviceState::decodes(const Matrix& w) const noexcept {
  return options.weights_as_f32 && quant::find_format(w.dtype)->activation != quant::Activation::f32;
}

size_t DeviceState::arena_bytes() const noexcept {
  size_t bytes = arena_.size() + partials.size() + arrived.size() + panel.size() + halves.size() + hopper.bytes() +
                 by_expert.bytes() + floats.bytes() + borrower->bytes() + batch_device_.size() + landings.bytes() +
                 logits_host.size() + kept_logits_.size() + input_host.size() + handed_host.size();
  for (const DeviceBuffer& table : rope_device) bytes += table.size();
  return bytes;
}

const ops::Embed* DeviceState::find_token_table() const noexcept {
  if (place.peers != nullptr || plan.handed != ops::kNone) return nullptr;
  const ops::Embed* found = nullptr;
  for (const ops::Op& op : plan.ops) {
    const auto* embed = op.as<ops::Embed>();
    if (embed == nullptr) continue;
    if (found != nullptr || kernels.unpacker(embed->table).kernel != UnpackKernel::eights) return nullptr;
    found = embed;
  }
  return found;
}

// Values and their integers share one arena; who is read no more gives its place to who comes later.
void DeviceState::place_values() {
  lower::Lifetimes lifetimes = schedule.lifetimes;
  if (token_table != nullptr) {  // the last kernel writes its rows, for the next run
    lower::Lifetime& life = lifetimes.values[static_cast<size_t>(token_table->y)];
    life.first_step = 0, life.last_step = static_cast<int32_t>(schedule.decode.size());
  }
  const lower::Placement placement = lower::place_values(plan, schedule.twins, lifetimes, options, 256);
  arena_ = DeviceBuffer(placement.bytes, "the activations of " + std::to_string(options.n_batch_max) + " tokens");
  lower::Places places = lower::places_in(arena_.data(), placement, plan, schedule.twins, options);
  values = std::move(places.values);
  activations = std::move(places.twins);
}

void DeviceState::place_tables() {
  for (const ops::RopeSpec& spec : plan.ropes) {
    rope_tables.emplace_back(spec, options.n_ctx);
    rope_device.emplace_back(static_cast<size_t>(options.n_ctx * spec.dim) * sizeof(float), "the table of rotations");
  }
  const auto n = static_cast<size_t>(options.n_batch_max);
  const size_t bytes = (kRoundWords + 4 * n) * sizeof(int32_t) +
                       n * sizeof(TokenTile);  // round, tokens, positions, sequences, selected, tiles
  batch_host_ = PinnedBuffer(bytes, "the batch");
  batch_device_ = DeviceBuffer(bytes, "the batch");
  size_t partials_bytes = 0, panel_bytes = 0, panel_row_bytes = 0, arrived_bytes = 0;
  for (const ops::Op& op : plan.ops) {
    if (const auto* attention = op.as<ops::Attention>()) {
      if (!is_usual(plan, *attention)) continue;
      const int64_t rows = alone_max() * attention->n_heads * segments_of(options.n_ctx);
      partials_bytes = std::max(partials_bytes, static_cast<size_t>(rows * (attention->head_dim + 2)) * sizeof(float));
      arrived_bytes = std::max(arrived_bytes, static_cast<size_t>(attention->n_heads) * sizeof(uint32_t));
    }
    const auto* experts = op.as<ops::ExpertLinear>();
    if (experts != nullptr && decodes(weights.matrix(experts->w))) {
      const Matrix& w = weights.matrix(experts->w);
      panel_bytes = std::max(panel_bytes, static_cast<size_t>(w.rows * w.cols) * sizeof(float));
      panel_row_bytes = std::max(panel_row_bytes, static_cast<size_t>(w.rows / experts->n_experts * w.cols) *
                                                      sizeof(float));  // an expert at least
    }
    const auto* linear = op.as<ops::Linear>();
    if (linear == nullptr || !decodes(weights.matrix(linear->w))) continue;
    const Matrix& w = weights.matrix(linear->w);
    panel_bytes = std::max(panel_bytes, static_cast<size_t>(w.rows * w.cols) * sizeof(float));
    panel_row_bytes = std::max(panel_row_bytes, static_cast<size_t>(w.cols) * sizeof(float));
  }
  partials = DeviceBuffer(partials_bytes, "scratch memory of attention");
  arrived = DeviceBuffer(arrived_bytes, "counters of attention");
  if (arrived_bytes > 0) check(cudaMemsetAsync(arrived.data(), 0, arrived_bytes, stream.get()), "clearing counters");
  panel = DeviceBuffer(std::max(std::min(panel_bytes, kPanelBytesMax), panel_row_bytes), "weights decoded to f32");
}

void DeviceState::place_floats() {
  std::vector<FloatNeed> needs;
  for (const FusionGroup& group : schedule.groups) {
    if (group.kind != FusionGroup::Kind::linears || group.twin != ops::kNone) continue;
    FloatNeed need;
    for (const int32_t op : group.ops) {
      const Matrix& w = weights.matrix(plan.ops[static_cast<size_t>(op)].get<ops::Linear>().w);
      if (!is_fast(w)) need.rows += base::round_up(w.rows, kFloatTileRows);
      need.cols = w.cols;
    }
    needs.push_back(need);
  }
  floats = FloatMemory(needs, options.n_batch_max);
}

// Room for a group of products decoded, or for as much of it as a panel holds.
void DeviceState::place_halves() {
  size_t bytes = 0, row_bytes_max = 0;
  for (const FusionGroup& group : schedule.groups) {
    if (group.kind != FusionGroup::Kind::linears) continue;
    size_t of_group = 0;
    for (const int32_t op : group.ops) {
      const Matrix& w = weights.matrix(plan.ops[static_cast<size_t>(op)].get<ops::Linear>().w);
      if (!is_fast(w) || !fast_decodes(w.dtype)) continue;
      const FloatChoice& choice = kernels.floats(op);
      const bool decodes = std::ranges::any_of(choice.ranges(), [&](const FloatRange& range) {
        return range.tokens_min <= options.n_batch_max && range.row->kernel != FloatKernel::fast_skinny_of_blocks;
      });
      if (!decodes) continue;
      const size_t row_bytes = static_cast<size_t>(w.cols) * sizeof(uint16_t);
      of_group += static_cast<size_t>(w.rows) * row_bytes;
      row_bytes_max = std::max(row_bytes_max, row_bytes);
    }
    bytes = std::max(bytes, of_group);
  }
  halves = DeviceBuffer(std::max(std::min(bytes, kPanelBytesMax), row_bytes_max), "weights decoded to half precision");
}

void DeviceState::place_experts() {
  std::vector<ExpertNeed> needs;
  for (const FusionGroup& group : schedule.groups) {
    if (group.kind != FusionGroup::Kind::experts || group.twin == ops::kNone) continue;
    const auto& r = plan.ops[static_cast<size_t>(group.ops.front())].get<ops::ExpertLinear>();
    needs.push_back(
        {r.n_experts, r.n_pairs(rows_max(r.y)), schedule.twins.list[static_cast<size_t>(group.twin)].kind, r.d_in});
  }
  by_expert = ExpertMemory(needs, options.planes, hopper.view());
}

void DeviceState::take_batch(const ops::Batch& batch) {
  n_tokens = static_cast<int64_t>(batch.tokens.size());
  const auto capacity = static_cast<size_t>(options.n_batch_max), n = static_cast<size_t>(n_tokens);
  auto* host = batch_host_.as<int32_t>() + kRoundWords;
  std::copy_n(batch.tokens.begin(), n, host);
  std::copy_n(batch.positions.begin(), n, host + capacity);
  if (batch.sequences.empty()) {
    std::fill_n(host + 2 * capacity, n, 0);
  } else {
    std::copy_n(batch.sequences.begin(), n, host + 2 * capacity);
  }
  std::transform(shape.selected.begin(), shape.selected.end(), host + 3 * capacity,
                 [](int64_t t) { return static_cast<int32_t>(t); });
  auto* tile = reinterpret_cast<TokenTile*>(host + 4 * capacity);
  const auto is_one = [](const ops::TokenRun& run) { return run.n == 1; };
  const int64_t n_runs = static_cast<int64_t>(shape.token_runs.size()),
                n_ones = std::count_if(shape.token_runs.begin(), shape.token_runs.end(), is_one);
  tokens_alone = n_tokens <= kSplitTokensMax || (n_tokens <= alone_max() && n_ones == n_runs);
  n_tiles_alone = tokens_alone || n_ones > alone_max() ? 0 : n_ones;
  const int64_t per_tile = tokens_alone ? 1 : kTileTokens;
  n_tiles = 0;
  n_positions_ = 1;
  for (const bool ones : {true, false}) {  // those that decode beside prompts come first
    for (const ops::TokenRun& run : shape.token_runs) {
      if (ones != (n_tiles_alone > 0 && is_one(run))) continue;
      n_positions_ = std::max(n_positions_, run.position + run.n);
      for (int64_t i = 0; i < run.n; i += per_tile) {
        tile[n_tiles++] = {static_cast<int32_t>(run.begin + i), static_cast<int32_t>(std::min(per_tile, run.n - i)),
                           static_cast<int32_t>(run.sequence), static_cast<int32_t>(run.position + i)};
      }
    }
  }
  n_segments = rounded_segments(n_positions_);
}

int64_t DeviceState::rounded_segments(int64_t n_positions) const noexcept {
  int64_t n = 1;
  while (n < segments_of(n_positions)) n *= 2;
  return std::min(n, segments_of(options.n_ctx));
}

int64_t DeviceState::n_segments_after() const noexcept {
  return n_positions_ < options.n_ctx ? rounded_segments(n_positions_ + 1) : 0;
}

Handover DeviceState::handover() const noexcept {
  Handover next{batch_part(0), batch_part(1), reinterpret_cast<TokenTile*>(batch_part(4)), kept_logits_.as<float>(),
                n_rows_kept()};
  if (gathers_land) next.round = batch_device_.as<uint32_t>();
  if (gathers_land && n_tokens == 1) next.sums = landings.sums_of_run();
  return next;
}

StateView DeviceState::state_view(int32_t state) const noexcept {
  StateView view = states.view(state);
  view.sequences = sequences();
  view.positions = positions();
  view.n_tokens = static_cast<int32_t>(n_tokens);
  view.n_parts = static_cast<int32_t>(shape.token_runs.size());
  return view;
}

TokenRows DeviceState::token_rows() const noexcept {
  if (!has_token_rows) return {};
  return {weights.matrix(token_table->table), static_cast<float>(token_table->scale), value(token_table->y)};
}

void DeviceState::send_batch() const {
  if (tokens_alone && place.peers == nullptr) {  // shards: not tried on several GPUs
    const BatchWords words{kRoundWords, static_cast<int32_t>(options.n_batch_max), static_cast<int32_t>(n_tokens),
                           static_cast<int32_t>(static_cast<size_t>(n_tiles) * sizeof(TokenTile) / sizeof(int32_t))};
    return fetch_batch(batch_host_.as<const int32_t>(), batch_device_.as<int32_t>(), words, stream.get());
  }
  const size_t bytes = (kRoundWords + 4 * static_cast<size_t>(options.n_batch_max)) * sizeof(int32_t) +
                       static_cast<size_t>(n_tiles) * sizeof(TokenTile);
  check(cudaMemcpyAsync(batch_device_.data(), batch_host_.data(), bytes, cudaMemcpyHostToDevice, stream.get()),
        "sending the batch");
}

void DeviceState::send_rows(const PinnedBuffer& from, ops::ValueId to) const {
  const size_t bytes = static_cast<size_t>(n_tokens) * row_bytes(to);
  if (bytes > 0)
    check(cudaMemcpyAsync(value(to), from.data(), bytes, cudaMemcpyHostToDevice, stream.get()), "sending rows");
}

void DeviceState::read_rows(ops::ValueId from, int64_t begin, int64_t n, const PinnedBuffer& to) const {
  const size_t bytes = static_cast<size_t>(n) * row_bytes(from), at = static_cast<size_t>(begin) * row_bytes(from);
  if (bytes == 0) return;
  const auto* rows = reinterpret_cast<const std::byte*>(value(from));
  check(cudaMemcpyAsync(to.data() + at, rows + at, bytes, cudaMemcpyDeviceToHost, stream.get()), "reading rows");
}

void DeviceState::read_row(const float* from, ops::ValueId of, int64_t i, const PinnedBuffer& to) const {
  const size_t bytes = row_bytes(of);
  check(cudaMemcpyAsync(to.data() + static_cast<size_t>(i) * bytes, from, bytes, cudaMemcpyDeviceToHost, stream.get()),
        "reading rows");
}

void DeviceState::fill_rope_tables() {
  const int64_t n_positions =
      std::min(options.n_ctx, *std::max_element(shape.n_positions.begin(), shape.n_positions.end()) + 1);
  if (n_positions <= n_rotations_) return;
  const int64_t target = std::min(options.n_ctx, base::round_up(n_positions, kRopeStep));
  for (size_t i = 0; i < rope_tables.size(); ++i) {
    ops::RopeTable& table = rope_tables[i];
    table.fill_to(target);
    const int64_t dim = table.spec().dim;
    check(cudaMemcpyAsync(rope_device[i].as<float>() + n_rotations_ * dim, table.cos(n_rotations_),
                          static_cast<size_t>((target - n_rotations_) * dim) * sizeof(float), cudaMemcpyHostToDevice,
                          stream.get()),
          "sending rotations");
  }
  n_rotations_ = target;
}

}  // namespace assay::backend::cuda
