// See view_rules.h. As a table: an op's type, and the pieces in which its kernel reads its inputs and writes its
// output. An op without a row in it takes rows that follow one another alone.
#include "backend/cpu/rows/view_rules.h"

#include <algorithm>

#include "ops/attention/attention.h"
#include "ops/attention/choose_keys.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/attention/sparse_attention.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/l2_norm.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/match_magnitude.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale_columns.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"

namespace assay::backend::cpu {
namespace {

// What a kernel takes of one value: rows that follow one another; rows of one piece, apart; pieces of a multiple of so
// many floats.
constexpr int64_t kTakesDense = 0, kTakesRows = -1, kTakesAny = 1;
// Kernels of single elements go through a row piece by piece: none so short that this is felt.
constexpr int64_t kTakesElements = 64;

using PiecesTaken = int64_t (*)(const ops::Plan& plan, const ops::Op& op, ops::ValueId value);

int64_t take_dense(const ops::Plan&, const ops::Op&, ops::ValueId) { return kTakesDense; }
int64_t take_rows(const ops::Plan&, const ops::Op&, ops::ValueId) { return kTakesRows; }
int64_t take_any(const ops::Plan&, const ops::Op&, ops::ValueId) { return kTakesAny; }
template <class Norm>
int64_t take_runs(const ops::Plan&, const ops::Op& op, ops::ValueId) {
  return op.get<Norm>().d;
}
template <class Heads>
int64_t take_heads(const ops::Plan&, const ops::Op& op, ops::ValueId) {
  return op.get<Heads>().head_dim;
}
int64_t take_elements(const ops::Plan&, const ops::Op&, ops::ValueId) { return kTakesElements; }
int64_t take_gated(const ops::Plan& plan, const ops::Op& op,
                   ops::ValueId) {  // a narrow gate is spread by the reference
  const auto& gate = op.get<ops::Gate>();
  const bool is_narrow = plan.values[at(gate.gate)].width != plan.values[at(gate.y)].width;
  return is_narrow ? kTakesRows : kTakesElements;
}
int64_t take_stored(const ops::Plan& plan, const ops::Op& op, ops::ValueId value) {
  const auto& store = op.get<ops::KvStore>();
  const ops::CacheLayer& layer = plan.cache_layers[at(store.layer)];
  if (store.k == store.v) return kTakesRows;
  return value == store.k ? layer.head_dim : layer.v_dim();
}
int64_t take_attended(const ops::Plan&, const ops::Op& op, ops::ValueId value) {
  const auto& sparse = op.get<ops::SparseAttention>();
  return value == sparse.q ? sparse.head_dim : kTakesRows;
}
int64_t give_heads(const ops::Plan& plan, const ops::Op& op, ops::ValueId y) {
  return plan.values[at(y)].width / op.get<ops::Attention>().n_heads;
}
int64_t take_by_experts(const ops::Plan&, const ops::Op& op, ops::ValueId value) {
  const auto& experts = op.get<ops::ExpertLinear>();
  return value == experts.x ? experts.d_in : kTakesRows;
}
int64_t take_summed(const ops::Plan&, const ops::Op& op, ops::ValueId value) {
  return value == op.get<ops::ExpertSum>().x ? kTakesDense : kTakesRows;  // the rows of a token's ranks are one run
}
int64_t give_by_experts(const ops::Plan&, const ops::Op& op, ops::ValueId) { return op.get<ops::ExpertLinear>().d_out; }

struct RulesRow {
  const void* op;  // its type
  PiecesTaken reads, writes;
};
template <class R>
RulesRow rules(PiecesTaken reads, PiecesTaken writes) noexcept {
  return {ops::Record::type_of<R>(), reads, writes};
}

const RulesRow* rules_of(const ops::Op& op) noexcept {
  static const RulesRow table[] = {rules<ops::Linear>(take_rows, take_rows),
                                   rules<ops::ExpertLinear>(take_by_experts, give_by_experts),
                                   rules<ops::ExpertSum>(take_summed, take_rows),
                                   rules<ops::ExpertScale>(take_rows, take_rows),
                                   rules<ops::Route>(take_rows, take_rows),
                                   rules<ops::RmsNorm>(take_runs<ops::RmsNorm>, take_runs<ops::RmsNorm>),
                                   rules<ops::LayerNorm>(take_runs<ops::LayerNorm>, take_runs<ops::LayerNorm>),
                                   rules<ops::L2Norm>(take_runs<ops::L2Norm>, take_runs<ops::L2Norm>),
                                   rules<ops::Rope>(take_heads<ops::Rope>, take_heads<ops::Rope>),
                                   rules<ops::KvStore>(take_stored, take_dense),
                                   rules<ops::Attention>(take_heads<ops::Attention>, give_heads),
                                   rules<ops::SparseAttention>(take_attended, take_rows),
                                   rules<ops::ChooseKeys>(take_rows, take_dense),
                                   rules<ops::Add>(take_elements, take_elements),
                                   rules<ops::Gate>(take_gated, take_gated),
                                   rules<ops::ClampedGate>(take_elements, take_elements),
                                   rules<ops::Activate>(take_elements, take_elements),
                                   rules<ops::AddColumns>(take_rows, take_rows),
                                   rules<ops::ScaleColumns>(take_rows, take_rows),
                                   rules<ops::MatchMagnitude>(take_rows, take_rows),
                                   rules<ops::DeltaRule>(take_rows, take_dense),
                                   rules<ops::SelectiveScan>(take_rows, take_dense),
                                   rules<ops::SelectOutputs>(take_any, take_any),
                                   rules<ops::Slice>(take_any, take_any),
                                   rules<ops::Join>(take_any, take_any)};
  const auto* found = std::ranges::find(table, op.record.type(), &RulesRow::op);
  return found == std::end(table) ? nullptr : found;
}

bool takes(const ops::Plan& plan, int64_t pieces, ops::ValueId value, int64_t run) {
  if (pieces == kTakesDense) return false;
  return run == plan.values[at(value)].width || (pieces != kTakesRows && run % pieces == 0);
}

}  // namespace

lower::ViewRules view_rules(const ops::Plan& plan) {
  return {[&plan](const ops::Op& op, ops::ValueId value, int64_t run) {
            const RulesRow* found = rules_of(op);
            return found != nullptr && takes(plan, found->reads(plan, op, value), value, run);
          },
          [&plan](const ops::Op& op, ops::ValueId value, int64_t run) {
            const RulesRow* found = rules_of(op);
            return found != nullptr && takes(plan, found->writes(plan, op, value), value, run);
          }};
}

}  // namespace assay::backend::cpu
