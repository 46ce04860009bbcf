// See op_table.h.
#include "backend/cuda/kernels/op_table.h"

#include <algorithm>
#include <climits>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/embed/embed_position.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/gather.h"
#include "ops/linear/route.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
#include "ops/rows/clamp.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/l2_norm.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_columns.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;
using Kind = lower::FusionGroup::Kind;

constexpr int64_t kManyRows = 256;  // of norms: below, a block of threads a row is sooner done
constexpr int64_t kNormWarps = 4;   // of a block of threads, each with a row in shared memory
constexpr int64_t kShortRow = 512;

bool is_in_registers(const OpShape& s, const Card&) noexcept {
  return s.width == 16 || s.width == 64 || s.width == 128;
}
// Three warps a block are worth it while the card has room for all blocks at once.
int64_t parts_of_walk(const OpShape& s, const Card& card) noexcept { return 2 * card.n_multiprocessors / s.n_blocks; }

bool is_by_warps(const OpShape& s, const Card& card) noexcept {
  return s.makes_integers && s.width % 32 == 0 &&
         kNormWarps * s.width * static_cast<int64_t>(sizeof(float)) <= card.shared_bytes_max;
}
bool is_short(const OpShape& s, const Card&) noexcept { return s.width <= kShortRow; }
// Of many rows more blocks share a multiprocessor, and one's sum hides in another's copies.
bool makes_no_integers(const OpShape& s, const Card&) noexcept { return !s.makes_integers; }

bool is_plain(const OpShape& s, const Card&) noexcept { return s.is_plain; }
constexpr int64_t kLanesTokensMin = 16;  // fewer are as soon done by the other
bool is_in_lanes(const OpShape& s, const Card&) noexcept { return s.is_in_lanes; }
int64_t tokens_in_32_bits(const OpShape& s, const Card&) noexcept { return INT32_MAX / s.token_elements; }

// A kernel of one op alone, that has no other.
template <class R>
constexpr OpRow alone(OpKernel kernel) {
  return {R::kKind, kernel, &ops::Record::type_of<R>, Kind::op};
}
constexpr const void* (*kDelta)() noexcept = &ops::Record::type_of<ops::DeltaRule>;

constexpr OpRow kRows[] = {
    alone<ops::Embed>(OpKernel::embed),
    alone<ops::EmbedPosition>(OpKernel::embed_position),
    alone<ops::RmsNorm>(OpKernel::rms_norm),
    alone<ops::LayerNorm>(OpKernel::layer_norm),
    alone<ops::L2Norm>(OpKernel::l2_norm),
    alone<ops::Rope>(OpKernel::rope),
    alone<ops::KvStore>(OpKernel::kv_store),
    alone<ops::Attention>(OpKernel::attention),
    alone<ops::Add>(OpKernel::add),
    alone<ops::Gate>(OpKernel::gate),
    alone<ops::ClampedGate>(OpKernel::clamped_gate),
    alone<ops::Activate>(OpKernel::activate),
    alone<ops::Softcap>(OpKernel::softcap),
    alone<ops::Scale>(OpKernel::scale),
    alone<ops::Clamp>(OpKernel::clamp),
    alone<ops::AddColumns>(OpKernel::add_columns),
    alone<ops::ScaleColumns>(OpKernel::scale_columns),
    alone<ops::Slice>(OpKernel::slice),
    alone<ops::Join>(OpKernel::join),
    alone<ops::SelectOutputs>(OpKernel::select_outputs),
    alone<ops::Route>(OpKernel::route),
    alone<ops::ExpertScale>(OpKernel::expert_scale),
    alone<ops::ExpertSum>(OpKernel::expert_sum),
    alone<ops::CausalConv>(OpKernel::causal_conv),
    {"delta rule of three warps", OpKernel::delta_walk, kDelta, Kind::op, &is_in_registers, 1, &parts_of_walk},
    {"delta rule", OpKernel::delta, kDelta, Kind::op, &is_in_registers},
    {"delta rule in memory", OpKernel::delta_in_memory, kDelta, Kind::op},
    alone<ops::SelectiveScan>(OpKernel::selective_scan),
    alone<ops::Gather>(OpKernel::gather),
    {"norm of rows by warps", OpKernel::norm_warps, nullptr, Kind::norm, &is_by_warps, kManyRows},
    {"norm of short rows", OpKernel::norm_small_blocks, nullptr, Kind::norm, &is_short},
    {"norm of many rows", OpKernel::norm_small_blocks, nullptr, Kind::norm, &makes_no_integers, kManyRows},
    {"norm of rows", OpKernel::norm_blocks, nullptr, Kind::norm},
    {"heads, plain", OpKernel::heads_plain, nullptr, Kind::heads, &is_plain, 1, &tokens_in_32_bits},
    {"heads by lanes", OpKernel::heads_lanes, nullptr, Kind::heads, &is_in_lanes, kLanesTokensMin, &tokens_in_32_bits},
    {"heads", OpKernel::heads, nullptr, Kind::heads},
    {"gate with integers", OpKernel::gate_with_integers, nullptr, Kind::gate},
    {"integers of rows", OpKernel::integers, nullptr, Kind::quantise},
};

OpShape alone_shape(const ops::Plan& plan, const ops::Op& op) {
  OpShape shape;
  if (const auto* delta = op.as<ops::DeltaRule>()) {
    const auto width = [&plan](ops::ValueId id) { return plan.values[static_cast<size_t>(id)].width; };
    shape.width = width(delta->k) / delta->n_key_heads;
    shape.n_blocks = delta->n_heads * ((width(delta->v) / delta->n_heads + 31) / 32);
  }
  return shape;
}

}  // namespace

std::span<const OpRow> op_table() noexcept { return kRows; }

bool has_op_kernel(const ops::Op& op) noexcept {
  return std::ranges::any_of(kRows,
                             [&](const OpRow& row) { return row.type != nullptr && row.type() == op.record.type(); });
}

OpChoice::OpChoice(const ops::Plan& plan, const ops::Op& op, const Card& card) {
  resolve(op.record.type(), Kind::op, alone_shape(plan, op), card);
}
OpChoice::OpChoice(Kind group, const OpShape& shape, const Card& card) { resolve(nullptr, group, shape, card); }

// Cuts at every bound of a row that takes the shape; between two cuts the first row that covers them has the range.
void OpChoice::resolve(const void* type, Kind group, const OpShape& shape, const Card& card) {
  const auto last = [&](const OpRow& row) { return row.n_max == nullptr ? lower::kAnyTokens : row.n_max(shape, card); };
  std::vector<const OpRow*> taking;
  std::vector<int64_t> cuts = {1};
  for (const OpRow& row : kRows) {
    const void* of = row.type == nullptr ? nullptr : row.type();
    if (of != type || row.group != group || (row.takes != nullptr && !row.takes(shape, card))) continue;
    taking.push_back(&row);
    cuts.push_back(row.n_min);
    if (last(row) < lower::kAnyTokens) cuts.push_back(last(row) + 1);
  }
  std::ranges::sort(cuts);
  for (const int64_t begin : cuts) {
    const auto found =
        std::ranges::find_if(taking, [&](const OpRow* row) { return row->n_min <= begin && begin <= last(*row); });
    if (found != taking.end()) add({begin, lower::kAnyTokens, *found});
  }
}

OpShape group_shape(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::Lowering& lowering,
                    const lower::FusionGroup& group) {
  const auto op_at = [&plan](int32_t op) -> const ops::Op& { return plan.ops[static_cast<size_t>(op)]; };
  OpShape shape;
  shape.makes_integers = group.twin != kNone;
  if (group.kind == Kind::norm) shape.width = op_at(group.norm).get<ops::RmsNorm>().d;
  if (group.kind != Kind::heads) return shape;
  const auto& q = op_at(group.q_rope).get<ops::Rope>();
  const auto& k = op_at(group.k_rope).get<ops::Rope>();
  const int64_t head_dim = q.head_dim;
  shape.token_elements = (q.n_heads + 2 * k.n_heads) * head_dim;
  const auto& rope = plan.ropes[static_cast<size_t>(q.rope)];
  const bool is_usual =
      rope.dim == head_dim && options.cache_k == ops::CacheType::f16 && options.cache_v == ops::CacheType::f16;
  shape.is_plain = is_usual && group.q_norm == kNone && group.k_norm == kNone &&
                   !lowering.read_outside[static_cast<size_t>(k.y)] && head_dim % 8 == 0;
  const auto& store = op_at(group.store).get<ops::KvStore>();
  const bool has_alike = store.v != kNone && plan.values[static_cast<size_t>(store.v)].width == k.n_heads * head_dim;
  shape.is_in_lanes =
      is_usual && !rope.interleaved && has_alike && (head_dim == 64 || head_dim == 128 || head_dim == 256);
  return shape;
}

}  // namespace assay::backend::cuda
