// See decode_groups.h. Products make the integers of their row themselves where all readers of a value's integers can; then nobody writes
// the integers. A norm right before its only products runs with them, a gate right after its two products too.
#include "backend/cuda/runtime/decode_groups.h"

#include <algorithm>
#include <string>

#include "backend/cuda/decode/decode.h"
#include "backend/cuda/attention/decode_attention.h"
#include "backend/cuda/attention/fast_attention.h"
#include "backend/cuda/decode/fast_decode.h"
#include "ops/rows/add.h"
#include "ops/attention/attention.h"
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

class Grouper {
 public:
  Grouper(const ops::Plan& plan, const ops::ExecutorOptions& options, Schedule& schedule) : plan_(plan), options_(options), s_(schedule) {}

  void run() {
    find_served();
    find_selected();
    for (size_t i = 0; i < s_.units.size();) i += add_group(i);
    find_sends();
    find_columns();
    find_adds();
    find_narrow();
    s_.group_of_unit.resize(s_.units.size());
    for (size_t g = 0; g < s_.decode.size(); ++g) {
      for (const int32_t unit : s_.decode[g].units) s_.group_of_unit[index(unit)] = static_cast<int32_t>(g);
    }
    find_read_outside();
  }

 private:
  static size_t index(int32_t id) { return static_cast<size_t>(id); }
  template <class Record>
  const Record& record(int32_t op) const {
    return plan_.ops[index(op)].get<Record>();
  }
  quant::Activation kind_of(const Unit& linears) const {
    return linears.quantised == kNone ? quant::Activation::f32 : s_.quantised[index(linears.quantised)].kind;
  }
  ops::ValueId row_of(const Unit& linears) const { return record<ops::Linear>(linears.ops.front()).x; }

  const tensor::TensorView& matrix_of(int32_t linear) const { return plan_.weights[index(record<ops::Linear>(linear).w)].view; }
  bool is_fast(const tensor::TensorView& w) const { return options_.fast && fast_serves(w.dtype, w.shape.cols()); }
  bool serves(const Unit& unit) const {
    const tensor::TensorView& first = matrix_of(unit.ops.front());
    if (is_fast(first)) {
      return std::all_of(unit.ops.begin(), unit.ops.end(), [&](int32_t op) {
        const tensor::TensorView& w = matrix_of(op);
        return w.dtype == first.dtype && fast_decode_serves(w.dtype, w.shape.rows(), w.shape.cols());
      });
    }
    return std::all_of(unit.ops.begin(), unit.ops.end(), [&](int32_t op) {
      const tensor::TensorView& w = matrix_of(op);
      const bool decoded = options_.weights_as_f32 && quant::find_format(w.dtype)->activation != quant::Activation::f32;
      return !decoded && !is_fast(w) && decode_serves(w.dtype, w.shape.rows(), w.shape.cols(), kind_of(unit));
    });
  }

  // Whether all products of a value's integers make them for themselves.
  void find_served() {
    own_.assign(s_.quantised.size(), true);
    for (const Unit& unit : s_.units) {
      const bool reads = unit.quantised != kNone && reads_quantised(unit.kind);
      if (reads && (unit.kind == Unit::Kind::experts || !serves(unit))) own_[index(unit.quantised)] = false;
    }
  }
  bool is_made_by_readers(int32_t quantised) const { return quantised != kNone && own_[index(quantised)]; }

  void find_selected() {
    s_.selected_from.assign(plan_.values.size(), kNone);
    for (const ops::Op& op : plan_.ops) {
      if (const auto* select = op.as<ops::SelectOutputs>()) s_.selected_from[index(select->y)] = select->x;
    }
  }

  const Unit* unit_at(size_t i) const { return i < s_.units.size() ? &s_.units[i] : nullptr; }

  // Products that decode serves, beginning at unit i; with the norm whose row they alone read, if that is before them.
  bool is_product(const Unit* unit) const {
    return unit != nullptr && unit->kind == Unit::Kind::linears && (unit->quantised == kNone ? serves(*unit) : is_made_by_readers(unit->quantised));
  }
  bool makes_row_of(const Unit& norm, const Unit* linears) const {
    if (norm.kind != Unit::Kind::norm || !is_product(linears) || record<ops::RmsNorm>(norm.norm).y != row_of(*linears)) return false;
    const ops::ValueId y = row_of(*linears);
    int n_readers = 0;
    for (const Unit& unit : s_.units) {
      n_readers += unit.kind == Unit::Kind::linears && row_of(unit) == y;
      n_readers += unit.kind == Unit::Kind::experts && record<ops::ExpertLinear>(unit.ops.front()).x == y;  // it wants the norm's integers
    }
    return n_readers == 1;
  }
  bool is_gate_of(const Unit* gate, const Unit& linears) const {
    if (gate == nullptr || linears.ops.size() != 2 || gate->ops.size() != 1) return false;
    const auto* r = plan_.ops[index(gate->ops.front())].as<ops::Gate>();
    if (r == nullptr || !is_usual(plan_, *r) || (gate->quantised != kNone && !is_made_by_readers(gate->quantised))) return false;
    const auto dtype_of = [&](size_t i) { return matrix_of(linears.ops[i]).dtype; };
    if (dtype_of(0) != dtype_of(1) || dtype_of(0) == tensor::DType::F32) return false;  // F32: two rows want too much shared memory
    const ops::ValueId a = record<ops::Linear>(linears.ops[0]).y, b = record<ops::Linear>(linears.ops[1]).y;
    return (a == r->gate && b == r->up) || (a == r->up && b == r->gate);
  }
  bool is_attention_of(const Unit& heads, const Unit* attention) const {
    if (heads.kind != Unit::Kind::heads || attention == nullptr || attention->kind != Unit::Kind::attention) return false;
    const auto& r = record<ops::Attention>(attention->ops.front());
    return r.q == record<ops::Rope>(heads.q_rope).y && r.layer == record<ops::KvStore>(heads.store).layer &&
           (attention->quantised == kNone || is_made_by_readers(attention->quantised)) &&
           decode_attention_serves(r.head_dim, options_.cache_k, options_.cache_v);
  }

  size_t add_group(size_t i) {
    const Unit& unit = s_.units[i];
    DecodeGroup group;
    size_t n = 1;
    if (unit.kind == Unit::Kind::quantise && is_made_by_readers(unit.quantised)) {
      group.kind = DecodeGroup::Kind::nothing;
    } else if (plan_.ops[index(unit.ops.empty() ? 0 : unit.ops.front())].is<ops::SelectOutputs>() &&
               unit.kind == Unit::Kind::op) {
      group.kind = DecodeGroup::Kind::nothing;  // readers take the row from where it was
    } else if (is_attention_of(unit, unit_at(i + 1))) {
      group.kind = DecodeGroup::Kind::attention;
      group.heads = static_cast<int32_t>(i);
      group.attention = static_cast<int32_t>(i + 1);
      n = 2;
    } else if (const bool has_norm = makes_row_of(unit, unit_at(i + 1)); has_norm || is_product(&unit)) {
      group.kind = DecodeGroup::Kind::linears;
      if (has_norm) group.norm = static_cast<int32_t>(i);
      group.linears = static_cast<int32_t>(i) + (has_norm ? 1 : 0);
      n = has_norm ? 2 : 1;
      if (is_gate_of(unit_at(i + n), s_.units[index(group.linears)])) {
        group.gate = static_cast<int32_t>(i + n);
        ++n;
      }
    } else {
      group.alone = unit;
      if (!reads_quantised(unit.kind) && is_made_by_readers(unit.quantised)) group.alone.quantised = kNone;
      if (group.alone.kind == Unit::Kind::gate && group.alone.quantised == kNone) group.alone.kind = Unit::Kind::op;
    }
    for (size_t k = 0; k < n; ++k) group.units.push_back(static_cast<int32_t>(i + k));
    s_.decode.push_back(std::move(group));
    return n;
  }

  const ops::Gather* gather_of(const DecodeGroup& group) const {
    const bool is_op = group.units.size() == 1 && group.alone.ops.size() == 1;
    return is_op ? plan_.ops[index(group.alone.ops.front())].as<ops::Gather>() : nullptr;
  }
  // The row that the kernels of a group make for others.
  ops::ValueId made_by(const DecodeGroup& group) const {
    if (group.kind == DecodeGroup::Kind::attention) return record<ops::Attention>(s_.units[index(group.attention)].ops.front()).y;
    if (group.kind != DecodeGroup::Kind::linears) return ops::kNone;
    if (group.gate != ops::kNone) return record<ops::Gate>(s_.units[index(group.gate)].ops.front()).y;
    const Unit& linears = s_.units[index(group.linears)];
    return linears.ops.size() == 1 ? record<ops::Linear>(linears.ops.front()).y : ops::kNone;
  }
  // The only group that reads a value, if its products do; its place in s_.decode, or none.
  size_t reader_of(ops::ValueId value) const {
    size_t reader = s_.decode.size();
    for (size_t g = 0; g < s_.decode.size(); ++g) {
      bool reads = value == plan_.output();
      for (const int32_t unit : s_.decode[g].units) {
        for (const int32_t op : s_.units[index(unit)].ops) {
          const std::vector<ops::ValueId> inputs = ops::values_of(plan_.ops[index(op)]).inputs;
          reads = reads || std::find(inputs.begin(), inputs.end(), value) != inputs.end();
        }
      }
      if (!reads) continue;
      if (reader != s_.decode.size() || s_.decode[g].kind != DecodeGroup::Kind::linears || s_.decode[g].waits != kNone) return s_.decode.size();
      reader = g;
    }
    return reader;
  }
  // Of a shard: a gather between kernels that send its row as they make it and others that wait for it needs no kernel of its own.
  void find_sends() {
    if (options_.fast) return;  // its kernels neither send nor wait
    for (size_t g = 1; g < s_.decode.size(); ++g) {
      const ops::Gather* gather = gather_of(s_.decode[g]);
      const size_t maker = g - 1;
      if (gather == nullptr || made_by(s_.decode[maker]) != gather->x) continue;
      const size_t reader = reader_of(gather->y);
      if (reader == s_.decode.size()) continue;
      const int32_t op = s_.decode[g].alone.ops.front();
      s_.decode[reader].waits = op;
      s_.decode[maker].sends = op;
      s_.decode[maker].units.push_back(s_.decode[g].units.front());
      s_.decode.erase(s_.decode.begin() + static_cast<std::ptrdiff_t>(g));
    }
  }

  // Whether what a group adds before its norm, and nothing else, is the value.
  bool adds(const DecodeGroup& group, ops::ValueId value) const {
    if (group.norm == kNone || s_.units[index(group.norm)].add == kNone) return false;
    const Unit& norm = s_.units[index(group.norm)];
    if (norm.pre_norm != kNone) return record<ops::RmsNorm>(norm.pre_norm).x == value;
    const auto& sum = record<ops::Add>(norm.add);
    return (sum.a == value) != (sum.b == value);
  }
  // Of a shard: products that can be made of its own columns alone, between kernels that hand them over by themselves.
  void find_columns() {
    for (DecodeGroup& group : s_.decode) {
      if (group.kind != DecodeGroup::Kind::linears || group.norm != kNone || group.gate != kNone) continue;
      if (group.waits == kNone || group.sends == kNone) continue;
      const Unit& unit = s_.units[index(group.linears)];
      const int32_t linear = unit.ops.front();
      if (unit.ops.size() != 1 || record<ops::Linear>(linear).columns == kNone || kind_of(unit) == quant::Activation::f32) continue;
      const auto with = [&](int32_t DecodeGroup::*field, int32_t gather) {
        return std::find_if(s_.decode.begin(), s_.decode.end(), [&](const DecodeGroup& other) { return other.*field == gather; });
      };
      if (!adds(*with(&DecodeGroup::waits, group.sends), record<ops::Gather>(group.sends).y)) continue;
      group.columns = true;
      with(&DecodeGroup::sends, group.waits)->keeps = true;
      s_.column_linears.push_back(linear);
    }
  }

  // A product whose row is only added to one of an earlier group, by the norm of the next group, adds it itself.
  void find_adds() {
    for (size_t g = 0; g + 1 < s_.decode.size(); ++g) {
      DecodeGroup &maker = s_.decode[g], &reader = s_.decode[g + 1];
      if (reader.kind != DecodeGroup::Kind::linears || reader.norm == kNone || reader.waits != kNone || maker.sends != kNone) continue;
      const Unit& norm = s_.units[index(reader.norm)];
      const ops::ValueId y = maker.kind == DecodeGroup::Kind::linears && maker.gate == kNone && maker.norm == kNone ? made_by(maker) : kNone;
      if (y == kNone || norm.add == kNone || norm.pre_norm != kNone || is_fast(matrix_of(s_.units[index(maker.linears)].ops.front()))) continue;
      const auto& add = record<ops::Add>(norm.add);
      if ((add.a == y) == (add.b == y) || n_readers(y) != 1) continue;
      maker.adds = norm.add;
      reader.is_added = true;
    }
  }
  void find_narrow() {
    for (size_t g = 0; g + 1 < s_.decode.size(); ++g) {
      const DecodeGroup& reader = s_.decode[g + 1];
      if (s_.decode[g].kind != DecodeGroup::Kind::attention || reader.kind != DecodeGroup::Kind::linears) continue;
      const tensor::TensorView& w = matrix_of(s_.units[index(reader.linears)].ops.front());
      s_.decode[g].reader_is_narrow = !is_fast(w) && decode_is_narrow(w.dtype, w.shape.rows());
    }
  }
  int n_readers(ops::ValueId value) const {
    int n = value == plan_.output() || value == plan_.handed ? 1 : 0;
    for (const ops::Op& op : plan_.ops) {
      const std::vector<ops::ValueId> inputs = ops::values_of(op).inputs;
      n += static_cast<int>(std::count(inputs.begin(), inputs.end(), value));
    }
    return n;
  }

  void find_read_outside() {
    s_.read_by_other_groups.assign(plan_.values.size(), false);
    std::vector<int32_t> made_in(plan_.values.size(), kNone);
    for (size_t u = 0; u < s_.units.size(); ++u) {
      for (const int32_t op : s_.units[u].ops) {
        const ops::OpValues values = ops::values_of(plan_.ops[index(op)]);
        for (ops::ValueId x : values.inputs) {
          const int32_t group = s_.group_of_unit[u];
          const bool is_added = s_.decode[index(group)].is_added && op == s_.units[u].add && made_in[index(x)] == group - 1;
          if (made_in[index(x)] != group && !is_added) s_.read_by_other_groups[index(x)] = true;
        }
        if (values.output != kNone) made_in[index(values.output)] = s_.group_of_unit[u];
      }
    }
    for (const ops::ValueId id : {plan_.output(), plan_.handed}) {
      if (id != kNone) s_.read_by_other_groups[index(id)] = true;
    }
  }

  const ops::Plan& plan_;
  const ops::ExecutorOptions& options_;
  Schedule& s_;
  std::vector<bool> own_;  // per quantised value
};

}  // namespace

void find_decode_groups(const ops::Plan& plan, const ops::ExecutorOptions& options, Schedule& schedule) { Grouper(plan, options, schedule).run(); }

}  // namespace assay::backend::cuda
