// List scheduling of a Plan's ops into steps; see schedule.h.
#include "backend/cpu/runtime/schedule.h"

#include <algorithm>
#include <string>

#include "assay/error.h"
#include "ops/attention/attention.h"
#include "ops/rows/embed.h"
#include "ops/linear/gather.h"
#include "ops/attention/kv_store.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"
#include "ops/rows/select_outputs.h"
#include "quant/format.h"

namespace assay::backend::cpu {
namespace {

using ops::kNone;
using ops::OpValues;
using ops::values_of;

constexpr int32_t kBefore = -2;  // the step of a value that is there when the run begins


class Scheduler {
 public:
  Scheduler(const ops::Plan& plan, const ops::ExecutorOptions& options) : plan_(plan), options_(options) {}

  Schedule run() {
    ready_in_.assign(plan_.values.size(), kNone);
    if (plan_.input != kNone) ready_in_[static_cast<size_t>(plan_.input)] = kBefore;
    stored_in_.assign(plan_.cache_layers.size(), kNone);
    done_.assign(plan_.ops.size(), false);
    schedule_.lifetimes.resize(plan_.values.size());
    while (n_done_ < plan_.ops.size()) {
      const size_t before = n_done_;
      add_row_step(ops::RowDomain::tokens);
      add_row_step(ops::RowDomain::outputs);
      add_linear_step();
      add_attention_steps();
      add_single_steps(ops::Role::experts, Step::Kind::experts);
      add_single_steps(ops::Role::gather, Step::Kind::gather);
      add_single_steps(ops::Role::state, Step::Kind::state);
      if (n_done_ == before) {
        const size_t stuck = static_cast<size_t>(std::find(done_.begin(), done_.end(), false) - done_.begin());
        throw Error(Errc::unsupported, "the plan's op " + plan_.ops[stuck].name + " waits for a value that no op writes");
      }
    }
    find_in_place();
    return std::move(schedule_);
  }

 private:
  int32_t current() const { return static_cast<int32_t>(schedule_.steps.size()); }
  ops::RowDomain domain_of(ops::ValueId value) const { return plan_.values[static_cast<size_t>(value)].domain; }
  ops::Role role(size_t i_op) const { return plan_.ops[i_op].record.role(); }

  int64_t width_of(ops::ValueId value) const { return plan_.values[static_cast<size_t>(value)].width; }

  // Whether all inputs are written before the current step or, where same_step allows it, in it.
  bool ready(const OpValues& values, bool same_step) const {
    return std::all_of(values.inputs.begin(), values.inputs.end(), [&](ops::ValueId value) {
      const int32_t step = ready_in_[static_cast<size_t>(value)];
      return step != kNone && (step < current() || same_step);
    });
  }

  void read(ops::ValueId value) {
    Lifetime& lifetime = schedule_.lifetimes[static_cast<size_t>(value)];
    lifetime.last_step = std::max(lifetime.last_step, current());
  }

  void take(size_t i_op, const OpValues& values) {
    done_[i_op] = true;
    ++n_done_;
    for (const ops::ValueId value : values.inputs) read(value);
    if (values.output != kNone) {
      ready_in_[static_cast<size_t>(values.output)] = current();
      schedule_.lifetimes[static_cast<size_t>(values.output)] = {current(), current(), kNone};
    }
    if (const auto* store = plan_.ops[i_op].as<ops::KvStore>()) stored_in_[static_cast<size_t>(store->layer)] = current();
  }

  void add_row_step(ops::RowDomain domain) {
    Step step;
    step.kind = Step::Kind::rows;
    step.domain = domain;
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      const ops::Op& op = plan_.ops[i];
      if (done_[i] || !(role(i) == ops::Role::row || role(i) == ops::Role::store || role(i) == ops::Role::select)) continue;
      const OpValues values = values_of(op);
      const ops::ValueId rows = values.output != kNone ? values.output : values.inputs[0];
      // A selected row comes from another row of its input, so another thread may have written it.
      if (domain_of(rows) != domain || !ready(values, role(i) != ops::Role::select)) continue;
      step.rows.push_back({static_cast<int32_t>(i), kNone, width_of(rows), row_kernel_of(op)});
      take(i, values);
    }
    if (!step.rows.empty()) schedule_.steps.push_back(std::move(step));
  }

  void add_linear_step() {
    Step step;
    step.kind = Step::Kind::linears;
    std::vector<size_t> members;
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      if (done_[i] || role(i) != ops::Role::product) continue;
      const OpValues values = values_of(plan_.ops[i]);
      if (!ready(values, false)) continue;
      if (members.empty()) step.domain = domain_of(values.output);
      if (domain_of(values.output) == step.domain) members.push_back(i);
    }
    if (members.empty()) return;
    std::vector<int32_t> quantised;
    for (const size_t i : members) quantised.push_back(quantise_for(plan_.ops[i].get<ops::Linear>(), step.domain));
    for (size_t i = 0; i < members.size(); ++i) {
      step.linears.push_back({static_cast<int32_t>(members[i]), quantised[i]});
      if (quantised[i] != kNone) schedule_.quantised[static_cast<size_t>(quantised[i])].last_step = current();
      take(members[i], values_of(plan_.ops[members[i]]));
    }
    schedule_.steps.push_back(std::move(step));
  }

  // The quantised twin of a linear's input, made at the end of the last step if that works on rows, else in a step of its own.
  int32_t quantise_for(const ops::Linear& linear, ops::RowDomain domain) {
    const quant::Format* format = quant::find_format(plan_.weights[static_cast<size_t>(linear.w)].view.dtype);
    if (options_.weights_as_f32 || format == nullptr || format->activation == quant::Activation::f32) return kNone;
    for (size_t i = 0; i < schedule_.quantised.size(); ++i) {
      const QuantisedValue& known = schedule_.quantised[i];
      if (known.x == linear.x && known.kind == format->activation) return static_cast<int32_t>(i);
    }
    if (schedule_.steps.empty() || schedule_.steps.back().kind != Step::Kind::rows || schedule_.steps.back().domain != domain) {
      Step step;
      step.domain = domain;
      schedule_.steps.push_back(std::move(step));
    }
    const auto id = static_cast<int32_t>(schedule_.quantised.size());
    schedule_.steps.back().rows.push_back({kNone, id, width_of(linear.x), nullptr});
    schedule_.quantised.push_back({linear.x, format->activation, current() - 1, current()});
    Lifetime& lifetime = schedule_.lifetimes[static_cast<size_t>(linear.x)];
    lifetime.last_step = std::max(lifetime.last_step, current() - 1);
    return id;
  }

  void add_attention_steps() {
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      const auto* attention = plan_.ops[i].as<ops::Attention>();
      if (done_[i] || attention == nullptr) continue;
      const OpValues values = values_of(plan_.ops[i]);
      const int32_t stored = stored_in_[static_cast<size_t>(attention->layer)];
      if (!ready(values, false) || stored == kNone || stored >= current()) continue;
      Step step;
      step.kind = Step::Kind::attention;
      step.op = static_cast<int32_t>(i);
      take(i, values);
      schedule_.steps.push_back(std::move(step));
    }
  }

  // Gathers: in the same order in every shard: their plans differ in widths alone.
  void add_single_steps(ops::Role of, Step::Kind kind) {
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      if (done_[i] || role(i) != of) continue;
      const OpValues values = values_of(plan_.ops[i]);
      if (!ready(values, false)) continue;
      Step step;
      step.kind = kind;
      step.domain = domain_of(values.output);
      step.op = static_cast<int32_t>(i);
      if (of == ops::Role::state) step.state = ops::state_of(plan_.ops[i]), step.state_kernel = state_kernel_of(plan_.ops[i]);
      take(i, values);
      schedule_.steps.push_back(std::move(step));
    }
  }

  // An op that reads element i of an input before it writes element i of its output may write it to the same place, if nobody else
  // reads the input from this step on. Inputs written in the same step keep their memory, so that an observer can still see them.
  void find_in_place() {
    std::vector<int32_t> readers_in_last_step(plan_.values.size(), 0);
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const Step& step = schedule_.steps[s];
      for (const RowWork& work : step.rows) {
        const auto inputs = work.op != kNone ? values_of(plan_.ops[static_cast<size_t>(work.op)]).inputs
                                             : std::vector{schedule_.quantised[static_cast<size_t>(work.quantised)].x};
        for (const ops::ValueId x : inputs) {
          if (schedule_.lifetimes[static_cast<size_t>(x)].last_step == static_cast<int32_t>(s)) ++readers_in_last_step[static_cast<size_t>(x)];
        }
      }
    }
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      for (const RowWork& work : schedule_.steps[s].rows) {
        if (work.op != kNone) reuse_an_input(plan_.ops[static_cast<size_t>(work.op)], static_cast<int32_t>(s), readers_in_last_step);
      }
    }
  }

  void reuse_an_input(const ops::Op& op, int32_t step, std::vector<int32_t>& readers_in_last_step) {
    if (!op.record.in_place()) return;
    const OpValues values = values_of(op);
    for (const ops::ValueId x : values.inputs) {
      const auto i = static_cast<size_t>(x);
      const Lifetime& input = schedule_.lifetimes[i];
      if (input.first_step < step && input.last_step == step && readers_in_last_step[i] == 1 && x != plan_.output() && x != plan_.handed &&
          plan_.values[i].width == plan_.values[static_cast<size_t>(values.output)].width) {
        schedule_.lifetimes[static_cast<size_t>(values.output)].in_place_of = x;
        readers_in_last_step[i] = 0;  // taken
        return;
      }
    }
  }

  const ops::Plan& plan_;
  const ops::ExecutorOptions& options_;
  Schedule schedule_;
  std::vector<int32_t> ready_in_;   // per value: the step that writes it
  std::vector<int32_t> stored_in_;  // per cache layer: the step of its KvStore
  std::vector<bool> done_;
  size_t n_done_ = 0;
};

}  // namespace

std::vector<int32_t> ops_of(const Step& step) {
  std::vector<int32_t> i_ops;
  for (const RowWork& work : step.rows) {
    if (work.op != kNone) i_ops.push_back(work.op);
  }
  for (const LinearWork& work : step.linears) i_ops.push_back(work.op);
  if (step.op != kNone) i_ops.push_back(step.op);
  return i_ops;
}

Schedule make_schedule(const ops::Plan& plan, const ops::ExecutorOptions& options) { return Scheduler(plan, options).run(); }

}  // namespace assay::backend::cpu
