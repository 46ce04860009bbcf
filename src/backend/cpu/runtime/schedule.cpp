// List scheduling of a Plan's ops into steps; see schedule.h.
#include "backend/cpu/runtime/schedule.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/rows/view_rules.h"
#include "lower/links.h"
#include "lower/progress.h"

namespace assay::backend::cpu {
namespace {

using ops::kNone;
using ops::Role;

// Ops of one role that run alone in a step, one after the other.
struct LoneRole {
  Role role;
  Step::Kind kind;
};
// Gathers: in the same order in every shard, whose plans differ in widths alone.
constexpr LoneRole kLoneRoles[] = {{Role::attention, Step::Kind::attention},
                                   {Role::cached, Step::Kind::cached},
                                   {Role::experts, Step::Kind::experts},
                                   {Role::gather, Step::Kind::gather},
                                   {Role::state, Step::Kind::state}};

class Scheduler {
 public:
  Scheduler(const ops::Plan& plan, const ops::ExecutorOptions& options, bool with_views)
      : plan_(plan), links_(plan), progress_(plan, links_) {
    schedule_.views = lower::find_views(plan, links_, with_views ? view_rules(plan) : lower::ViewRules{});
    schedule_.twins = lower::find_twins(plan, options, false);
    made_.of_op.assign(plan.ops.size(), kNone);
    made_.of_twin.assign(schedule_.twins.list.size(), kNone);
    for (const ops::Value& each : plan.values) {
      if (std::ranges::find(domains_, each.domain) == domains_.end()) domains_.push_back(each.domain);
    }
  }

  Schedule run() {
    while (!progress_.is_all_done()) {
      const size_t before = progress_.n_done();
      for (const ops::RowDomain& domain : domains_) add_row_step(domain);
      add_linear_step();
      for (const LoneRole& lone : kLoneRoles) add_lone_steps(lone);
      if (progress_.n_done() == before) progress_.refuse();
    }
    made_.n = current();
    schedule_.lifetimes = lower::find_lifetimes(plan_, links_, schedule_.twins, made_);
    lower::extend_to_views(schedule_.views, schedule_.lifetimes);
    lower::share_in_place(plan_, links_, schedule_.twins, made_, schedule_.views, schedule_.lifetimes);
    return std::move(schedule_);
  }

 private:
  int32_t current() const { return static_cast<int32_t>(schedule_.steps.size()); }
  int32_t n_ops() const { return static_cast<int32_t>(plan_.ops.size()); }
  const ops::Op& op_at(int32_t op) const { return plan_.ops[static_cast<size_t>(op)]; }
  Role role(int32_t op) const { return op_at(op).record.role(); }
  const ops::Value& value(ops::ValueId id) const { return plan_.values[static_cast<size_t>(id)]; }

  void take(int32_t op) {
    progress_.take(op, current());
    made_.of_op[static_cast<size_t>(op)] = current();
  }

  void add_row_step(const ops::RowDomain& domain) {
    Step step;
    step.kind = Step::Kind::rows;
    step.domain = domain;
    for (int32_t op = 0; op < n_ops(); ++op) {
      const bool is_select = role(op) == Role::select;
      if (progress_.is_done(op) || !(role(op) == Role::row || role(op) == Role::store || is_select)) continue;
      const ops::Value& rows = value(links_.output(op) != kNone ? links_.output(op) : links_.inputs(op)[0]);
      // A selected row comes from another row of its input, so another thread may have written it.
      if (rows.domain != domain || !progress_.has_inputs(op, is_select ? current() : current() + 1)) continue;
      const RowKernel kernel = row_kernel_of(op_at(op), schedule_.views);
      step.rows.push_back({op, kNone, copies_nothing(kernel) ? 0 : rows.width, kernel});
      take(op);
    }
    if (!step.rows.empty()) schedule_.steps.push_back(std::move(step));
  }

  void add_linear_step() {
    Step step;
    step.kind = Step::Kind::linears;
    for (int32_t op = 0; op < n_ops(); ++op) {
      if (progress_.is_done(op) || role(op) != Role::product || !progress_.has_inputs(op, current())) continue;
      const ops::RowDomain& domain = value(links_.output(op)).domain;
      if (step.linears.empty()) step.domain = domain;
      if (domain == step.domain) step.linears.push_back({op, schedule_.twins.read_by_op[static_cast<size_t>(op)]});
    }
    if (step.linears.empty()) return;
    for (const LinearWork& work : step.linears) make_twin(work.twin, step.domain);
    for (const LinearWork& work : step.linears) take(work.op);
    schedule_.steps.push_back(std::move(step));
  }

  // At the end of the last step if that works on rows, else in a step of its own.
  void make_twin(int32_t twin, const ops::RowDomain& domain) {
    if (twin == kNone || made_.of_twin[static_cast<size_t>(twin)] != kNone) return;
    if (current() == 0 || schedule_.steps.back().kind != Step::Kind::rows || schedule_.steps.back().domain != domain) {
      schedule_.steps.emplace_back();
      schedule_.steps.back().domain = domain;
    }
    const int64_t width = value(schedule_.twins.list[static_cast<size_t>(twin)].x).width;
    schedule_.steps.back().rows.push_back({kNone, twin, width, nullptr});
    made_.of_twin[static_cast<size_t>(twin)] = current() - 1;
  }

  void add_lone_steps(const LoneRole& lone) {
    for (int32_t op = 0; op < n_ops(); ++op) {
      if (progress_.is_done(op) || role(op) != lone.role || !progress_.has_inputs(op, current())) continue;
      Step step;
      step.kind = lone.kind;
      step.domain = value(links_.output(op)).domain;
      step.op = op;
      if (lone.role == Role::state) {
        step.state = ops::state_of(op_at(op));
        step.state_kernel = state_kernel_of(op_at(op));
      }
      if (lone.role == Role::cached) step.cached_kernel = cached_kernel_of(op_at(op));
      take(op);
      schedule_.steps.push_back(std::move(step));
    }
  }

  const ops::Plan& plan_;
  std::vector<ops::RowDomain> domains_ = {ops::RowDomain::tokens, ops::RowDomain::outputs};  // of values
  const lower::Links links_;
  lower::Progress progress_;
  lower::Steps made_;
  Schedule schedule_;
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

Schedule make_schedule(const ops::Plan& plan, const ops::ExecutorOptions& options, bool with_views) {
  return Scheduler(plan, options, with_views).run();
}

}  // namespace assay::backend::cpu
