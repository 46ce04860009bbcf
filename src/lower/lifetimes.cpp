// See lifetimes.h.
#include "lower/lifetimes.h"

#include <algorithm>

#include "base/index.h"

namespace assay::lower {
namespace {

using ops::kNone;

// The input whose memory the op's output may have, or kNone.
ops::ValueId input_to_take(const ops::Plan& plan, const Links& links, const std::vector<int>& n_last_reads,
                           const Lifetimes& lifetimes, int32_t op, int32_t step) {
  for (const ops::ValueId x : links.inputs(op)) {
    const Lifetime& input = lifetimes.values[at(x)];
    const bool ends_here = input.first_step < step && input.last_step == step && n_last_reads[at(x)] == 1;
    const ops::Value &of_x = plan.values[at(x)], &of_y = plan.values[at(links.output(op))];
    const bool fits = of_x.width == of_y.width && of_x.domain == of_y.domain;
    if (ends_here && fits && !links.is_given_out(x)) return x;
  }
  return kNone;
}

}  // namespace

Lifetimes find_lifetimes(const ops::Plan& plan, const Links& links, const Twins& twins, const Steps& steps) {
  Lifetimes lifetimes;
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const auto value = static_cast<ops::ValueId>(i);
    const int32_t producer = links.producer(value), first = producer == kNone ? 0 : steps.of_op[at(producer)];
    lifetimes.values.push_back({first, first, kNone});
    for (const int32_t op : links.readers(value)) lifetimes.extend(value, steps.of_op[at(op)]);
    if (links.is_given_out(value)) lifetimes.extend(value, steps.n);
  }
  for (size_t i = 0; i < twins.list.size(); ++i) {
    lifetimes.twins.push_back({steps.of_twin[i], steps.of_twin[i], kNone});
    lifetimes.extend(twins.list[i].x, steps.of_twin[i]);
  }
  for (size_t op = 0; op < plan.ops.size(); ++op) {
    if (twins.read_by_op[op] == kNone) continue;
    Lifetime& twin = lifetimes.twins[at(twins.read_by_op[op])];
    twin.last_step = std::max(twin.last_step, steps.of_op[op]);
  }
  return lifetimes;
}

void extend_to_views(const Views& views, Lifetimes& lifetimes) {
  for (size_t i = 0; i < views.of.size(); ++i) {
    if (views.of[i].base == kNone) continue;
    const Lifetime& view = lifetimes.values[i];
    Lifetime& base = lifetimes.values[at(views.of[i].base)];
    base.first_step = std::min(base.first_step, view.first_step);
    base.last_step = std::max(base.last_step, view.last_step);
  }
}

void share_in_place(const ops::Plan& plan, const Links& links, const Twins& twins, const Steps& steps,
                    const Views& views, Lifetimes& lifetimes) {
  std::vector<int> n_last_reads(plan.values.size(), 0);  // in the last step that reads the value
  const auto count = [&](ops::ValueId x, int32_t step) {
    n_last_reads[at(x)] += step == lifetimes.values[at(x)].last_step;
  };
  for (size_t op = 0; op < plan.ops.size(); ++op) {
    for (const ops::ValueId x : links.inputs(static_cast<int32_t>(op))) count(x, steps.of_op[op]);
  }
  for (size_t i = 0; i < twins.list.size(); ++i) count(twins.list[i].x, steps.of_twin[i]);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const auto op = static_cast<int32_t>(i);
    if (!plan.ops[i].record.in_place() || links.output(op) == kNone || views.is_shared(links.output(op))) continue;
    const ops::ValueId x = input_to_take(plan, links, n_last_reads, lifetimes, op, steps.of_op[i]);
    if (x != kNone && !views.is_shared(x)) lifetimes.values[at(links.output(op))].in_place_of = x;
  }
}

}  // namespace assay::lower
