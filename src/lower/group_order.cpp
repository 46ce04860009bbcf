// See group_order.h.
#include "lower/group_order.h"

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "lower/progress.h"

namespace assay::lower {
namespace {

using ops::kNone;
using Kind = FusionGroup::Kind;

constexpr int32_t kNow = 1;  // all that is made is made in step 0

// What is made by the groups that have their place.
struct Made {
  Progress ops;
  std::vector<uint8_t> twins;
};

bool has_twin(const Made& made, int32_t twin) { return twin == kNone || made.twins[at(twin)] != 0; }

// Whether everything that the group reads and does not make itself is there.
bool is_ready(const Links& links, const Twins& twins, const FusionGroup& group, const Made& made) {
  if (group.kind == Kind::quantise) return made.ops.has_value(twins.list[at(group.twin)].x, kNow);
  if (reads_twin(group.kind) && !has_twin(made, group.twin)) return false;
  return std::ranges::all_of(group.ops, [&](int32_t op) {
    const auto is_there = [&](ops::ValueId x) {
      return made.ops.has_value(x, kNow) || std::ranges::binary_search(group.ops, links.producer(x));
    };
    return made.ops.has_layer_of(op, kNow) && std::ranges::all_of(links.inputs(op), is_there);
  });
}

}  // namespace

std::vector<FusionGroup> in_order(const ops::Plan& plan, const Links& links, const Twins& twins,
                                  std::vector<FusionGroup> groups) {
  std::vector<std::pair<int32_t, size_t>> waiting;  // by the op that each begins with, or whose value it quantises
  for (size_t i = 0; i < groups.size(); ++i) {
    const FusionGroup& group = groups[i];
    const bool is_twin = group.kind == Kind::quantise;
    const int32_t first = is_twin ? links.producer(twins.list[at(group.twin)].x) : group.ops.front();
    waiting.emplace_back(first, i);
  }
  std::ranges::sort(waiting);
  Made made{Progress(plan, links), std::vector<uint8_t>(twins.list.size(), 0)};
  std::vector<FusionGroup> ordered;
  while (!waiting.empty()) {
    const auto next = std::ranges::find_if(
        waiting, [&](const auto& entry) { return is_ready(links, twins, groups[entry.second], made); });
    if (next == waiting.end()) made.ops.refuse();
    FusionGroup& group = groups[next->second];
    for (const int32_t op : group.ops) made.ops.take(op, 0);
    if (group.twin != kNone) made.twins[at(group.twin)] = 1;
    ordered.push_back(std::move(group));
    waiting.erase(next);
  }
  return ordered;
}

}  // namespace assay::lower
