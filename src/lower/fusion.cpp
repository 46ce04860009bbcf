// See fusion.h. Each finder below looks at the ops that no group has yet and returns what it found; heads go first, for
// a norm of heads as wide as a row is theirs. Norms are looked for backwards, so that the longest pattern wins.
#include "lower/fusion.h"

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "lower/group_order.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/select_outputs.h"

namespace assay::lower {
namespace {

using ops::kNone;
using Kind = FusionGroup::Kind;

// What every finder reads.
struct Facts {
  const ops::Plan& plan;
  const Links& links;
  const Twins& twins;
  const DeviceLimits& device;

  template <class Record>
  const Record* record(int32_t op) const {
    return op == kNone ? nullptr : plan.ops[at(op)].as<Record>();
  }
  int64_t width(ops::ValueId value) const { return plan.values[at(value)].width; }
  int32_t n_ops() const { return static_cast<int32_t>(plan.ops.size()); }
};

// The groups found so far, and which ops they have.
class Found {
 public:
  explicit Found(const Facts& facts) : has_op_(facts.plan.ops.size(), 0), has_twin_(facts.twins.list.size(), 0) {}

  bool is_free(int32_t op) const { return op != kNone && has_op_[at(op)] == 0; }
  bool makes(size_t twin) const { return has_twin_[twin] != 0; }
  void enter(FusionGroup group) {
    std::ranges::sort(group.ops);
    for (const int32_t op : group.ops) has_op_[at(op)] = 1;
    if (group.twin != kNone && !reads_twin(group.kind)) has_twin_[at(group.twin)] = 1;
    groups_.push_back(std::move(group));
  }
  std::vector<FusionGroup> take() { return std::move(groups_); }

 private:
  std::vector<FusionGroup> groups_;
  std::vector<uint8_t> has_op_, has_twin_;
};

// A norm over whole rows, as wide as the device's kernel takes.
bool is_row_norm(const Facts& facts, const Found& found, int32_t op) {
  const auto* norm = facts.record<ops::RmsNorm>(op);
  return norm != nullptr && norm->w != kNone && found.is_free(op) && norm->d == facts.width(norm->x) &&
         norm->d <= facts.device.norm_width_max;
}

void find_norm(const Facts& facts, int32_t i, Found& found) {
  if (!is_row_norm(facts, found, i)) return;
  const auto* norm = facts.record<ops::RmsNorm>(i);
  FusionGroup group{Kind::norm, {i}, facts.twins.find_any(norm->y)};
  group.norm = i;
  const int32_t add = facts.links.producer(norm->x);
  if (const auto* sum = facts.record<ops::Add>(add); sum != nullptr && found.is_free(add)) {
    group.add = add;
    group.ops.push_back(add);
    for (const ops::ValueId x : {sum->b, sum->a}) {
      const int32_t before = facts.links.producer(x);
      const bool is_pre_norm = is_row_norm(facts, found, before) && facts.links.is_read_once(x);
      if (group.pre_norm != kNone || !is_pre_norm || facts.twins.find_any(x) != kNone) continue;
      group.pre_norm = before;
      group.ops.push_back(before);
    }
  }
  found.enter(std::move(group));
}

// The norm of heads ahead of a rotation, where nobody else reads it.
int32_t head_norm(const Facts& facts, const Found& found, const ops::Rope& rope) {
  const int32_t before = facts.links.producer(rope.x);
  const auto* norm = facts.record<ops::RmsNorm>(before);
  const bool fits = norm != nullptr && norm->w != kNone && found.is_free(before) && norm->d == rope.head_dim;
  return fits && facts.links.is_read_once(rope.x) ? before : kNone;
}

// The op that stores an attention's keys, if that is the first to read them: where later layers read the cache too,
// its keys are made with the queries of the first.
int32_t store_of_first(const Facts& facts, int32_t i) {
  int32_t store = kNone;
  const int32_t layer = facts.links.layer_read(i);
  for (int32_t op = 0; op < facts.n_ops(); ++op) {
    if (op < i && facts.links.layer_read(op) == layer) return kNone;
    if (facts.links.layer_stored(op) == layer) store = op;
  }
  return store;
}

// Whether one kernel can rotate both and store the keys.
bool fits_heads(const Facts& facts, const ops::Rope& q, const ops::Rope& k, const ops::CacheLayer& layer) {
  const int64_t d = layer.head_dim;
  return q.rope == k.rope && facts.links.is_read_once(k.y) && k.head_dim == d && q.head_dim == d &&
         k.n_heads == layer.n_kv_heads && layer.stored_v_dim() == d && d <= facts.device.head_dim_max;
}

void find_heads(const Facts& facts, int32_t i, Found& found) {
  const auto* attention = facts.record<ops::Attention>(i);
  if (attention == nullptr) return;
  FusionGroup group{Kind::heads, {}};
  group.store = store_of_first(facts, i);
  const auto* store = facts.record<ops::KvStore>(group.store);
  if (store == nullptr || !found.is_free(group.store)) return;
  group.q_rope = facts.links.producer(attention->q);
  group.k_rope = facts.links.producer(store->k);
  const auto* q = facts.record<ops::Rope>(group.q_rope);
  const auto* k = facts.record<ops::Rope>(group.k_rope);
  if (q == nullptr || k == nullptr || !found.is_free(group.q_rope) || !found.is_free(group.k_rope)) return;
  if (!fits_heads(facts, *q, *k, facts.plan.cache_layers[at(store->layer)])) return;
  group.q_norm = head_norm(facts, found, *q);
  group.k_norm = head_norm(facts, found, *k);
  for (const int32_t op : {group.q_norm, group.k_norm, group.q_rope, group.k_rope, group.store}) {
    if (op != kNone) group.ops.push_back(op);
  }
  found.enter(std::move(group));
}

// All linears of the same twin, or of the same floats.
void find_linears(const Facts& facts, int32_t i, Found& found) {
  const auto* first = facts.record<ops::Linear>(i);
  if (first == nullptr || !found.is_free(i)) return;
  FusionGroup group{Kind::linears, {i}, facts.twins.read_by_op[at(i)]};
  for (const int32_t other : facts.links.readers(first->x)) {
    if (group.ops.size() == facts.device.products_max) break;
    const bool alike = facts.record<ops::Linear>(other) != nullptr && facts.twins.read_by_op[at(other)] == group.twin;
    if (other > i && alike && found.is_free(other)) group.ops.push_back(other);
  }
  found.enter(std::move(group));
}

void find_rest(const Facts& facts, int32_t i, Found& found) {
  if (!found.is_free(i)) return;
  const DeviceLimits& device = facts.device;
  FusionGroup group{Kind::op, {i}};
  const auto* gate = facts.record<ops::Gate>(i);
  const auto* attention = facts.record<ops::Attention>(i);
  if (gate != nullptr && device.gate_makes_twin && device.gate_makes_twin(*gate)) {
    group.twin = facts.twins.find_any(gate->y);
    if (group.twin != kNone) group.kind = Kind::gate;
  } else if (attention != nullptr && device.attention_makes_twin && device.attention_makes_twin(*attention)) {
    group.kind = Kind::attention;
    group.twin = facts.twins.find_any(attention->y);
  } else if (facts.record<ops::ExpertLinear>(i) != nullptr) {
    group.kind = Kind::experts;
    group.twin = facts.twins.read_by_op[at(i)];
  } else if (device.has_kernel && !device.has_kernel(facts.plan.ops[at(i)])) {
    group.kind = Kind::borrowed;
  }
  found.enter(std::move(group));
}

}  // namespace

std::vector<FusionGroup> find_groups(const ops::Plan& plan, const Links& links, const Twins& twins,
                                     const DeviceLimits& device) {
  const Facts facts{plan, links, twins, device};
  Found found(facts);
  for (int32_t i = facts.n_ops(); i-- > 0;) find_heads(facts, i, found);
  for (int32_t i = facts.n_ops(); i-- > 0;) find_norm(facts, i, found);
  for (int32_t i = 0; i < facts.n_ops(); ++i) find_linears(facts, i, found);
  for (int32_t i = 0; i < facts.n_ops(); ++i) find_rest(facts, i, found);
  for (size_t i = 0; i < twins.list.size(); ++i) {
    if (!found.makes(i)) found.enter({Kind::quantise, {}, static_cast<int32_t>(i)});
  }
  return in_order(plan, links, twins, found.take());
}

std::vector<bool> find_read_outside(const ops::Plan& plan, const Links& links, const Twins& twins,
                                    const std::vector<FusionGroup>& groups) {
  std::vector<bool> read(plan.values.size(), false);
  for (const FusionGroup& group : groups) {
    if (group.kind == Kind::quantise) read[at(twins.list[at(group.twin)].x)] = true;
    if (group.kind == Kind::linears && group.twin != kNone) continue;
    for (const int32_t op : group.ops) {
      for (const ops::ValueId x : links.inputs(op)) {
        if (!std::ranges::binary_search(group.ops, links.producer(x))) read[at(x)] = true;
      }
    }
  }
  for (size_t i = 0; i < plan.values.size(); ++i) {
    if (links.is_given_out(static_cast<ops::ValueId>(i))) read[i] = true;
  }
  return read;
}

std::vector<ops::ValueId> find_selected(const ops::Plan& plan) {
  std::vector<ops::ValueId> selected(plan.values.size(), kNone);
  for (const ops::Op& op : plan.ops) {
    if (const auto* select = op.as<ops::SelectOutputs>()) selected[at(select->y)] = select->x;
  }
  return selected;
}

}  // namespace assay::lower
