// See schedule.h. Units are found first, backwards so that the longest pattern of norms wins, then put in an order in which each finds its
// inputs made.
#include "backend/cuda/runtime/schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include "assay/error.h"
#include "backend/cuda/runtime/decode_groups.h"
#include "backend/cuda/rows/fused.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/runtime/run_ops.h"
#include "ops/rows/activation.h"
#include "ops/rows/add.h"
#include "ops/attention/attention.h"
#include "ops/rows/embed.h"
#include "ops/linear/expert_linear.h"
#include "ops/rows/gate.h"
#include "ops/linear/gather.h"
#include "ops/attention/kv_store.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"
#include "ops/rows/rms_norm.h"
#include "ops/attention/rope.h"
#include "ops/rows/select_outputs.h"
#include "quant/format.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;

class Scheduler {
 public:
  Scheduler(const ops::Plan& plan, const ops::ExecutorOptions& options)
      : plan_(plan), options_(options), producer_(plan.values.size(), kNone), n_readers_(plan.values.size(), 0), unit_of_(plan.ops.size(), kNone) {
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const ops::OpValues values = ops::values_of(plan.ops[i]);
      if (values.output != kNone) producer_[index(values.output)] = static_cast<int32_t>(i);
      for (const ops::ValueId x : values.inputs) ++n_readers_[index(x)];
    }
  }

  Schedule run() {
    find_quantised();
    for (size_t i = plan_.ops.size(); i-- > 0;) {
      find_norm(static_cast<int32_t>(i));
      find_heads(static_cast<int32_t>(i));
    }
    for (size_t i = 0; i < plan_.ops.size(); ++i) find_linears(static_cast<int32_t>(i));
    for (size_t i = 0; i < plan_.ops.size(); ++i) find_rest(static_cast<int32_t>(i));
    for (size_t i = 0; i < schedule_.quantised.size(); ++i) {
      if (maker_[i] == kNone) enter({Unit::Kind::quantise, {}, static_cast<int32_t>(i)});
    }
    put_in_order();
    find_decode_groups(plan_, options_, schedule_);
    find_lifetimes();
    return std::move(schedule_);
  }

 private:
  static size_t index(int32_t id) { return static_cast<size_t>(id); }
  template <class Record>
  const Record* record(int32_t op) const {
    return op == kNone ? nullptr : plan_.ops[index(op)].as<Record>();
  }
  int64_t width(ops::ValueId value) const { return plan_.values[index(value)].width; }
  bool is_free(int32_t op) const { return op != kNone && unit_of_[index(op)] == kNone; }
  bool read_once(ops::ValueId value) const { return n_readers_[index(value)] == 1 && value != plan_.output() && value != plan_.handed; }

  int32_t enter(Unit unit) {
    const auto id = static_cast<int32_t>(units_.size());
    std::sort(unit.ops.begin(), unit.ops.end());
    for (const int32_t op : unit.ops) unit_of_[index(op)] = id;
    const bool makes = unit.quantised != kNone && !reads_quantised(unit.kind);
    if (makes) maker_[index(unit.quantised)] = id;
    units_.push_back(std::move(unit));
    return id;
  }

  void find_quantised() {
    twin_of_linear_.assign(plan_.ops.size(), kNone);
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      const auto* linear = record<ops::Linear>(static_cast<int32_t>(i));
      const auto* experts = record<ops::ExpertLinear>(static_cast<int32_t>(i));
      if ((linear == nullptr && experts == nullptr) || options_.weights_as_f32) continue;
      const ops::ValueId x = linear != nullptr ? linear->x : experts->x;
      const quant::Activation kind = quant::find_format(plan_.weights[index(linear != nullptr ? linear->w : experts->w)].view.dtype)->activation;
      if (kind == quant::Activation::f32) continue;
      int32_t twin = twin_of(x, kind);
      if (twin == kNone) {
        twin = static_cast<int32_t>(schedule_.quantised.size());
        schedule_.quantised.push_back({x, kind, 0, 0});
      }
      twin_of_linear_[i] = twin;
    }
    maker_.assign(schedule_.quantised.size(), kNone);
  }

  int32_t twin_of(ops::ValueId x, quant::Activation kind) const {
    for (size_t i = 0; i < schedule_.quantised.size(); ++i) {
      if (schedule_.quantised[i].x == x && schedule_.quantised[i].kind == kind) return static_cast<int32_t>(i);
    }
    return kNone;
  }
  int32_t any_twin_of(ops::ValueId x) const {
    const int32_t a256 = twin_of(x, quant::Activation::a256);
    return a256 != kNone ? a256 : twin_of(x, quant::Activation::a32);
  }

  bool is_row_norm(int32_t op) const {
    const auto* norm = record<ops::RmsNorm>(op);
    return norm != nullptr && norm->w != kNone && is_free(op) && norm->d == width(norm->x) && norm->d <= kNormWidthMax;
  }

  void find_norm(int32_t i) {
    if (!is_row_norm(i)) return;
    const auto* norm = record<ops::RmsNorm>(i);
    Unit unit{Unit::Kind::norm, {i}, any_twin_of(norm->y)};
    unit.norm = i;
    const int32_t add = producer_[index(norm->x)];
    if (const auto* sum = record<ops::Add>(add); sum != nullptr && is_free(add)) {
      unit.add = add;
      unit.ops.push_back(add);
      for (const ops::ValueId x : {sum->b, sum->a}) {
        const int32_t before = producer_[index(x)];
        if (unit.pre_norm != kNone || !is_row_norm(before) || !read_once(x) || any_twin_of(x) != kNone) continue;
        unit.pre_norm = before;
        unit.ops.push_back(before);
      }
    }
    enter(std::move(unit));
  }

  // The norm of heads before a rotation, where nobody else reads it.
  int32_t head_norm(const ops::Rope& rope) const {
    const int32_t before = producer_[index(rope.x)];
    const auto* norm = record<ops::RmsNorm>(before);
    return norm != nullptr && norm->w != kNone && is_free(before) && norm->d == rope.head_dim && read_once(rope.x) ? before : kNone;
  }

  void find_heads(int32_t i) {
    const auto* attention = record<ops::Attention>(i);
    if (attention == nullptr) return;
    Unit unit{Unit::Kind::heads, {}};
    for (size_t op = 0; op < plan_.ops.size(); ++op) {
      const auto* store = record<ops::KvStore>(static_cast<int32_t>(op));
      if (store != nullptr && store->layer == attention->layer) unit.store = static_cast<int32_t>(op);
      // A cache that later layers read too: its keys are made with the queries of the first.
      const auto* other = record<ops::Attention>(static_cast<int32_t>(op));
      if (other != nullptr && other->layer == attention->layer && static_cast<int32_t>(op) < i) return;
    }
    const auto* store = record<ops::KvStore>(unit.store);
    if (store == nullptr || !is_free(unit.store)) return;
    unit.q_rope = producer_[index(attention->q)];
    unit.k_rope = producer_[index(store->k)];
    const auto* q = record<ops::Rope>(unit.q_rope);
    const auto* k = record<ops::Rope>(unit.k_rope);
    const auto& layer = plan_.cache_layers[index(store->layer)];
    if (q == nullptr || k == nullptr || q->rope != k->rope || !is_free(unit.q_rope) || !is_free(unit.k_rope) || !read_once(k->y) ||
        k->head_dim != layer.head_dim || q->head_dim != layer.head_dim || k->n_heads != layer.n_kv_heads || layer.stored_v_dim() != layer.head_dim ||
        layer.head_dim > kHeadDimMax) {
      return;
    }
    unit.q_norm = head_norm(*q);
    unit.k_norm = head_norm(*k);
    for (const int32_t op : {unit.q_norm, unit.k_norm, unit.q_rope, unit.k_rope, unit.store}) {
      if (op != kNone) unit.ops.push_back(op);
    }
    enter(std::move(unit));
  }

  // All linears of the same integers, or of the same floats.
  void find_linears(int32_t i) {
    if (record<ops::Linear>(i) == nullptr || !is_free(i)) return;
    Unit unit{Unit::Kind::linears, {i}, twin_of_linear_[index(i)]};
    const ops::ValueId x = record<ops::Linear>(i)->x;
    for (size_t other = index(i) + 1; other < plan_.ops.size() && unit.ops.size() < kLinearsMax; ++other) {
      const auto* linear = record<ops::Linear>(static_cast<int32_t>(other));
      const bool alike = linear != nullptr && linear->x == x && twin_of_linear_[other] == unit.quantised;
      if (alike && is_free(static_cast<int32_t>(other))) unit.ops.push_back(static_cast<int32_t>(other));
    }
    enter(std::move(unit));
  }

  void find_rest(int32_t i) {
    if (!is_free(i)) return;
    Unit unit{Unit::Kind::op, {i}};
    const auto* gate = record<ops::Gate>(i);
    const auto* attention = record<ops::Attention>(i);
    if (gate != nullptr && is_usual(plan_, *gate)) {
      unit.quantised = any_twin_of(gate->y);
      if (unit.quantised != kNone) unit.kind = Unit::Kind::gate;
    } else if (attention != nullptr && is_usual(plan_, *attention)) {
      unit.kind = Unit::Kind::attention;
      unit.quantised = any_twin_of(attention->y);
    } else if (record<ops::ExpertLinear>(i) != nullptr) {
      unit.kind = Unit::Kind::experts;
      unit.quantised = twin_of_linear_[index(i)];
    } else if (!has_op_kernel(plan_.ops[index(i)])) {
      unit.kind = Unit::Kind::borrowed;
    }
    enter(std::move(unit));
  }

  // Whether everything that the unit reads from outside is there.
  bool is_ready(const Unit& unit, const std::vector<bool>& value_made, const std::vector<bool>& twin_made, const std::vector<bool>& stored) const {
    if (unit.kind == Unit::Kind::quantise) return value_made[index(schedule_.quantised[index(unit.quantised)].x)];
    if (unit.kind == Unit::Kind::linears && unit.quantised != kNone) return twin_made[index(unit.quantised)];
    if (unit.kind == Unit::Kind::experts && unit.quantised != kNone && !twin_made[index(unit.quantised)]) return false;
    for (const int32_t op : unit.ops) {
      for (const ops::ValueId x : ops::values_of(plan_.ops[index(op)]).inputs) {
        const int32_t from = producer_[index(x)];
        const bool own = from != kNone && std::find(unit.ops.begin(), unit.ops.end(), from) != unit.ops.end();
        if (!own && !value_made[index(x)]) return false;
      }
      if (const auto* attention = record<ops::Attention>(op); attention != nullptr && !stored[index(attention->layer)]) return false;
    }
    return true;
  }

  void put_in_order() {
    std::vector<bool> value_made(plan_.values.size()), twin_made(schedule_.quantised.size()), stored(plan_.cache_layers.size()), done(units_.size());
    if (plan_.input != kNone) value_made[index(plan_.input)] = true;
    // By the first op of each unit; integers come right after their value.
    std::vector<std::pair<int32_t, size_t>> order;
    for (size_t u = 0; u < units_.size(); ++u) {
      const int32_t at = units_[u].kind == Unit::Kind::quantise ? producer_[index(schedule_.quantised[index(units_[u].quantised)].x)]
                                                                : units_[u].ops.front();
      order.emplace_back(at, u);
    }
    std::sort(order.begin(), order.end());
    for (size_t n_done = 0; n_done < units_.size(); ++n_done) {
      const auto next = std::find_if(order.begin(), order.end(), [&](const auto& entry) {
        return !done[entry.second] && is_ready(units_[entry.second], value_made, twin_made, stored);
      });
      if (next == order.end()) throw Error(Errc::unsupported, "the plan has an op that waits for a value that no op writes");
      Unit& unit = units_[next->second];
      done[next->second] = true;
      for (const int32_t op : unit.ops) {
        const ops::ValueId y = ops::values_of(plan_.ops[index(op)]).output;
        if (y != kNone) value_made[index(y)] = true;
        if (const auto* store = record<ops::KvStore>(op)) stored[index(store->layer)] = true;
      }
      if (unit.quantised != kNone) twin_made[index(unit.quantised)] = true;
      schedule_.units.push_back(std::move(unit));
    }
  }

  void find_lifetimes() {
    schedule_.lifetimes.resize(plan_.values.size());
    schedule_.read_outside.assign(plan_.values.size(), false);
    std::vector<int32_t> made_in(plan_.values.size(), kNone);
    for (size_t u = 0; u < schedule_.units.size(); ++u) {
      const Unit& unit = schedule_.units[u];
      const auto i_unit = static_cast<int32_t>(u);
      const int32_t now = schedule_.group_of_unit[u];  // what one kernel reads and writes never shares memory
      const auto read = [&](ops::ValueId x, bool as_floats) {
        schedule_.lifetimes[index(x)].last_step = now;
        if (schedule_.selected_from[index(x)] != kNone) schedule_.lifetimes[index(schedule_.selected_from[index(x)])].last_step = now;
        if (as_floats && made_in[index(x)] != i_unit) schedule_.read_outside[index(x)] = true;
      };
      for (const int32_t op : unit.ops) {
        const ops::ValueId y = ops::values_of(plan_.ops[index(op)]).output;
        if (y == kNone) continue;
        const DecodeGroup& group = schedule_.decode[static_cast<size_t>(now)];
        const bool is_early = group.is_added && unit.add == op;  // the group before makes it
        schedule_.lifetimes[index(y)] = {is_early ? now - 1 : now, now};
        made_in[index(y)] = i_unit;
      }
      for (const int32_t op : unit.ops) {
        for (const ops::ValueId x : ops::values_of(plan_.ops[index(op)]).inputs) {
          read(x, unit.kind != Unit::Kind::linears || unit.quantised == kNone);
        }
      }
      if (unit.quantised == kNone) continue;
      QuantisedValue& twin = schedule_.quantised[index(unit.quantised)];
      if (unit.kind == Unit::Kind::quantise) read(twin.x, true);
      if (!reads_quantised(unit.kind)) twin.first_step = now;
      twin.last_step = now;
    }
    for (size_t g = 0; g < schedule_.decode.size(); ++g) {
      if (!schedule_.decode[g].columns) continue;
      const ops::ValueId own = record<ops::Gather>(schedule_.decode[g].waits)->x;
      schedule_.lifetimes[index(own)].last_step = std::max(schedule_.lifetimes[index(own)].last_step, static_cast<int32_t>(g));
    }
    for (const ops::ValueId id : {plan_.output(), plan_.handed}) {
      if (id != kNone) schedule_.read_outside[index(id)] = true;
    }
  }

  const ops::Plan& plan_;
  const ops::ExecutorOptions& options_;
  Schedule schedule_;
  std::vector<Unit> units_;
  std::vector<int32_t> producer_;        // per value: the op that writes it
  std::vector<int32_t> n_readers_;       // per value: the ops that read it
  std::vector<int32_t> unit_of_;         // per op
  std::vector<int32_t> twin_of_linear_;  // per op
  std::vector<int32_t> maker_;           // per quantised value: the unit that makes it
};

}  // namespace

bool is_usual(const ops::Plan& plan, const ops::Attention& attention) noexcept {
  const ops::CacheLayer& cache = plan.cache_layers[static_cast<size_t>(attention.layer)];
  return attention.softcap == 0 && attention.sinks == kNone && attention.chunk == 0 && attention.causal && cache.stored_v_dim() == cache.head_dim &&
         cache.head_dim <= kHeadDimMax;
}

bool is_usual(const ops::Plan& plan, const ops::Gate& gate) noexcept {
  const bool known = gate.activation == ops::ActivationFunction::silu || gate.activation == ops::ActivationFunction::gelu_tanh;
  return known && plan.values[static_cast<size_t>(gate.gate)].width == plan.values[static_cast<size_t>(gate.y)].width;
}

Schedule make_schedule(const ops::Plan& plan, const ops::ExecutorOptions& options) {
  return Scheduler(plan, options).run();
}

}  // namespace assay::backend::cuda
