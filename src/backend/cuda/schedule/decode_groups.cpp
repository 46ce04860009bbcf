// See decode_groups.h. Products make the integers of their row themselves where all readers of a value's integers can.
// A norm right before its only products runs with them, a gate right after its two products too, a router's
// product with its norm and routes, two products by the experts of the same routes, and an expert block run together.
#include "backend/cuda/schedule/decode_groups.h"

#include <utility>

#include "backend/cuda/kernels/attention_table.h"
#include "backend/cuda/runtime/usual.h"
#include "backend/cuda/schedule/expert_blocks.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/select_outputs.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;
using Kind = FusionGroup::Kind;

// Whether the norm makes the row of these products, and of no others.
bool makes_row_of(const DecodeProducts& p, const FusionGroup& norm, const FusionGroup* linears) {
  if (norm.kind != Kind::norm || !p.is_served(linears, true)) return false;
  const ops::ValueId y = p.row_of(*linears);
  if (p.record<ops::RmsNorm>(norm.norm).y != y) return false;
  int n_readers = 0;
  for (const FusionGroup& group : p.lowering.groups) {
    n_readers += group.kind == Kind::linears && p.row_of(group) == y;
    // It wants the norm's integers.
    n_readers += group.kind == Kind::experts && p.record<ops::ExpertLinear>(group.ops.front()).x == y;
  }
  return n_readers == 1;
}

bool is_gate_of(const DecodeProducts& p, const FusionGroup* gate, const FusionGroup& linears) {
  if (gate == nullptr || linears.ops.size() != 2 || gate->ops.size() != 1) return false;
  const auto* r = p.plan.ops[static_cast<size_t>(gate->ops.front())].as<ops::Gate>();
  if (r == nullptr || !is_usual(p.plan, *r)) return false;
  if (gate->twin != kNone && !p.is_made_by_readers(gate->twin)) return false;
  const tensor::DType dtype = p.matrix_of(linears.ops[0]).dtype;
  if (dtype != p.matrix_of(linears.ops[1]).dtype) return false;
  if (dtype == tensor::DType::F32) return false;  // two rows want too much shared memory
  const ops::ValueId a = p.record<ops::Linear>(linears.ops[0]).y, b = p.record<ops::Linear>(linears.ops[1]).y;
  return (a == r->gate && b == r->up) || (a == r->up && b == r->gate);
}

bool is_attention_of(const DecodeProducts& p, const FusionGroup& heads, const FusionGroup* attention) {
  if (heads.kind != Kind::heads || attention == nullptr || attention->kind != Kind::attention) return false;
  const auto& r = p.record<ops::Attention>(attention->ops.front());
  return r.q == p.record<ops::Rope>(heads.q_rope).y && r.layer == p.record<ops::KvStore>(heads.store).layer &&
         (attention->twin == kNone || p.is_made_by_readers(attention->twin)) &&
         find_attention_row(AttentionUse::one_token, attention_shape(p.plan, p.options, r, false), p.card) != nullptr;
}

// [norm,] products [, gate].
DecodeGroup products_from(const DecodeProducts& p, int32_t norm, int32_t linears) {
  DecodeGroup group;
  group.kind = DecodeGroup::Kind::linears;
  group.norm = norm;
  group.linears = linears;
  group.row = p.row_for(p.group(linears), norm != kNone);
  if (is_gate_of(p, p.group_at(static_cast<size_t>(linears) + 1), p.group(linears))) group.gate = linears + 1;
  for (const int32_t member : {group.norm, group.linears, group.gate}) {
    if (member != kNone) group.members.push_back(member);
  }
  return group;
}

DecodeGroup alone(const DecodeProducts& p, int32_t i) {
  DecodeGroup group;
  group.alone = p.group(i);
  group.members = {i};
  const bool reads = lower::reads_twin(group.alone.kind);
  if (!reads && p.is_made_by_readers(group.alone.twin)) group.alone.twin = kNone;
  if (group.alone.kind == Kind::gate && group.alone.twin == kNone) group.alone.kind = Kind::op;
  return group;
}

// A router's product and what chooses by its logits: one kernel.
bool is_router_of(const DecodeProducts& p, const FusionGroup& linears, const FusionGroup* route) {
  if (linears.kind != Kind::linears || linears.twin != kNone || linears.ops.size() != 1) return false;
  if (route == nullptr || route->kind != Kind::op) return false;
  const auto* r = p.plan.ops[static_cast<size_t>(route->ops.front())].as<ops::Route>();
  const auto& product = p.record<ops::Linear>(linears.ops.front());
  return r != nullptr && r->logits == product.y && product.columns == kNone &&
         p.router_row(linears.ops.front()) != nullptr;
}

// [norm,] router, routes.
DecodeGroup routes_from(const DecodeProducts& p, int32_t norm, int32_t linears) {
  DecodeGroup group;
  group.kind = DecodeGroup::Kind::routes;
  group.row = p.router_row(p.group(linears).ops.front());
  group.norm = norm;
  group.linears = linears;
  group.route = linears + 1;
  group.makes_integers = norm != kNone && p.group(norm).twin != kNone && !p.is_made_by_readers(p.group(norm).twin);
  if (norm != kNone) group.members.push_back(norm);
  group.members.insert(group.members.end(), {group.linears, group.route});
  return group;
}

// The two kernels of an expert block.
DecodeGroup gated_experts_from(const ExpertTokenRow* row, int32_t first) {
  DecodeGroup group;
  group.kind = DecodeGroup::Kind::expert_gate;
  group.expert_row = row;
  group.experts = first, group.gate = first + kExpertBlockGate;
  group.members = {first, first + 1, group.gate};
  return group;
}
DecodeGroup summed_experts_from(const ExpertTokenRow* row, int32_t first) {
  DecodeGroup group;
  group.kind = DecodeGroup::Kind::expert_sum;
  group.expert_row = row;
  group.experts = first + kExpertBlockDown, group.sum = first + kExpertBlockSum;
  group.members = {group.experts, group.sum};
  return group;
}

// Whether there is nothing to do: integers that the readers make, selected rows that they take from where they were.
bool is_nothing(const DecodeProducts& p, const FusionGroup& group) {
  if (group.kind == Kind::quantise) return p.is_made_by_readers(group.twin);
  return group.kind == Kind::op && p.plan.ops[static_cast<size_t>(group.ops.front())].is<ops::SelectOutputs>();
}

// The one that begins with fusion group i.
DecodeGroup group_from(const DecodeProducts& p, int32_t i) {
  const FusionGroup& first = p.group(i);
  const FusionGroup* next = p.group_at(static_cast<size_t>(i) + 1);
  if (is_nothing(p, first)) {
    DecodeGroup group;
    group.kind = DecodeGroup::Kind::nothing;
    group.members = {i};
    return group;
  }
  if (is_attention_of(p, first, next)) {
    DecodeGroup group;
    group.kind = DecodeGroup::Kind::attention;
    group.heads = i;
    group.attention = i + 1;
    group.members = {i, i + 1};
    return group;
  }
  if (is_router_of(p, first, next)) return routes_from(p, kNone, i);
  const bool makes_its_row = first.kind == Kind::norm && first.pre_norm == kNone && next != nullptr &&
                             is_router_of(p, *next, p.group_at(static_cast<size_t>(i) + 2)) &&
                             p.record<ops::RmsNorm>(first.norm).y == p.row_of(*next);
  if (makes_its_row) return routes_from(p, i, i + 1);
  if (makes_row_of(p, first, next)) return products_from(p, i, i + 1);
  if (const ExpertTokenRow* row = p.expert_block(i)) return gated_experts_from(row, i);
  if (const ExpertTokenRow* row = p.expert_block(i - kExpertBlockDown))
    return summed_experts_from(row, i - kExpertBlockDown);
  if (are_by_one_route(p.plan, first, next) && p.are_vectors(first) && p.are_vectors(*next)) {
    DecodeGroup group = alone(p, i);
    group.alone.ops.push_back(next->ops.front());
    group.members.push_back(i + 1);
    return group;
  }
  return p.is_served(&first, false) ? products_from(p, kNone, i) : alone(p, i);
}

}  // namespace

std::vector<DecodeGroup> find_decode_groups(const DecodeProducts& products) {
  std::vector<DecodeGroup> groups;
  const auto n = static_cast<int32_t>(products.lowering.groups.size());
  for (int32_t i = 0; i < n; i += static_cast<int32_t>(groups.back().members.size())) {
    groups.push_back(group_from(products, i));
  }
  return groups;
}

}  // namespace assay::backend::cuda
