// See progress.h.
#include "lower/progress.h"

#include <algorithm>
#include <limits>

#include "assay/error.h"
#include "base/index.h"

namespace assay::lower {
namespace {

constexpr int32_t kBefore = std::numeric_limits<int32_t>::min(), kNever = std::numeric_limits<int32_t>::max();

}  // namespace

Progress::Progress(const ops::Plan& plan, const Links& links)
    : plan_(plan), links_(links), values_(plan.values.size(), kNever), layers_(plan.cache_layers.size(), kNever),
      done_(plan.ops.size(), 0) {
  if (plan.input != ops::kNone) values_[at(plan.input)] = kBefore;
}

bool Progress::has_inputs(int32_t op, int32_t before) const noexcept {
  return has_layer_of(op, before) &&
         std::ranges::all_of(links_.inputs(op), [&](ops::ValueId x) { return has_value(x, before); });
}

void Progress::take(int32_t op, int32_t step) noexcept {
  done_[at(op)] = 1;
  ++n_done_;
  if (links_.output(op) != ops::kNone) values_[at(links_.output(op))] = step;
  if (links_.layer_stored(op) != ops::kNone) layers_[at(links_.layer_stored(op))] = step;
}

void Progress::refuse() const {
  const auto stuck = static_cast<size_t>(std::find(done_.begin(), done_.end(), 0) - done_.begin());
  throw Error(Errc::unsupported, "the plan's op " + plan_.ops[stuck].name + " waits for a value that no op writes");
}

}  // namespace assay::lower
