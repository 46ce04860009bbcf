// See views.h.
#include "lower/views.h"

#include <algorithm>
#include <utility>

namespace assay::lower {
namespace {

using ops::kNone;
using ops::ValueId;

class Finder {
 public:
  Finder(const ops::Plan& plan, const Links& links, const ViewRules& rules)
      : plan_(plan), links_(links), rules_(rules) {
    views_.of.resize(plan.values.size());
    views_.holds_others.resize(plan.values.size());
    views_.placed_in.resize(plan.values.size(), kNone);
    for (const ops::Value& value : plan.values) views_.layouts.push_back(ops::ValueLayout::rows_of(value.width));
  }

  // Joins from the last one on, so that a joined value which is itself a part has its place before its parts get
  // theirs. Then slices in order, so that one of a view finds that in its place.
  Views run() {
    for (size_t i = plan_.ops.size(); rules_.writes && i-- > 0;) {
      const auto* join = plan_.ops[i].as<ops::Join>();
      if (join != nullptr) place_parts(*join, static_cast<int32_t>(i));
    }
    for (size_t i = 0; rules_.reads && i < plan_.ops.size(); ++i) {
      const auto* slice = plan_.ops[i].as<ops::Slice>();
      if (slice != nullptr) place_slice(*slice);
    }
    return std::move(views_);
  }

 private:
  int64_t width(ValueId value) const { return plan_.values[at(value)].width; }

  void place_parts(const ops::Join& join, int32_t op) {
    const int64_t of_a = width(join.a) / join.n_runs, of_y = width(join.y) / join.n_runs, of_b = of_y - of_a;
    const bool is_for_all = width(join.b) != join.n_runs * of_b;  // one run, which is copied behind every one of a
    if (join.a == join.b) return;
    place_part(join, join.a, of_a, 0, op);
    if (!is_for_all) place_part(join, join.b, of_b, of_a, op);
  }

  void place_part(const ops::Join& join, ValueId part, int64_t run, int64_t first, int32_t op) {
    const int32_t producer = links_.producer(part);
    if (producer == kNone || !rules_.writes(plan_.ops[at(producer)], part, run)) return;
    if (!can_lie(part, join.y) || !is_read_in_runs(part, run, op)) return;
    place(part, join.y, first, run, width(join.y) / join.n_runs);
  }

  void place_slice(const ops::Slice& slice) {
    const int64_t run = width(slice.y) / slice.n_runs;
    if (!can_lie(slice.y, slice.x) || !is_read_in_runs(slice.y, run, kNone)) return;
    place(slice.y, slice.x, slice.first, run, width(slice.x) / slice.n_runs);
  }

  // In one that has its rows in one piece each.
  bool can_lie(ValueId value, ValueId in) const {
    return !views_.is_shared(value) && !links_.is_given_out(value) && views_.layouts[at(in)].is_whole() &&
           plan_.values[at(value)].domain == plan_.values[at(in)].domain;
  }

  bool is_read_in_runs(ValueId value, int64_t run, int32_t but_for) const {
    return std::ranges::all_of(links_.readers(value), [&](int32_t op) {
      return op == but_for || (rules_.reads && rules_.reads(plan_.ops[at(op)], value, run));
    });
  }

  void place(ValueId value, ValueId in, int64_t first, int64_t run, int64_t run_stride) {
    const bool is_whole = run == width(value);
    const View& of_base = views_.of[at(in)];
    const ValueId base = of_base.base == kNone ? in : of_base.base;
    views_.of[at(value)] = {base, of_base.first + first};
    views_.layouts[at(value)] = {views_.layouts[at(in)].stride, run, is_whole ? run : run_stride};
    views_.placed_in[at(value)] = in;
    views_.holds_others[at(in)] = views_.holds_others[at(base)] = true;
  }

  const ops::Plan& plan_;
  const Links& links_;
  const ViewRules& rules_;
  Views views_;
};

}  // namespace

bool is_view_of_input(const ops::Slice& slice, const Views& views) noexcept {
  return views.placed_in[at(slice.y)] == slice.x;
}

PartsInPlace parts_in_place(const ops::Join& join, const Views& views) noexcept {
  return {views.placed_in[at(join.a)] == join.y, views.placed_in[at(join.b)] == join.y};
}

Views find_views(const ops::Plan& plan, const Links& links, const ViewRules& rules) {
  return Finder(plan, links, rules).run();
}

}  // namespace assay::lower
