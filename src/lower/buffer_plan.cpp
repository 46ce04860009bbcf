// First fit in order of time: layers repeat, so every layer finds the gaps that the one before it left, at the same
// offsets.
#include "lower/buffer_plan.h"

#include <algorithm>

#include "base/round_up.h"

namespace assay::lower {
namespace {

struct Live {
  size_t begin, end;
  int32_t last_step;
};

size_t first_gap(const std::vector<Live>& live, size_t bytes) {  // live is sorted by begin
  size_t at = 0;
  for (const Live& other : live) {
    if (at + bytes <= other.begin) break;
    at = std::max(at, other.end);
  }
  return at;
}

}  // namespace

BufferPlan place_buffers(std::span<const BufferNeed> needs, size_t alignment) {
  BufferPlan plan;
  std::vector<int32_t> last_step(needs.size());  // of the memory: its own and that of those that take it over
  std::vector<size_t> owner(needs.size());
  for (size_t i = 0; i < needs.size(); ++i) {
    owner[i] = needs[i].in_place_of >= 0 ? owner[static_cast<size_t>(needs[i].in_place_of)] : i;
    last_step[i] = needs[i].last_step;
    last_step[owner[i]] = std::max(last_step[owner[i]], needs[i].last_step);
  }
  std::vector<Live> live;
  for (size_t i = 0; i < needs.size(); ++i) {
    if (owner[i] != i) {
      plan.offsets.push_back(plan.offsets[owner[i]]);
      continue;
    }
    std::erase_if(live, [&](const Live& other) { return other.last_step < needs[i].first_step; });
    const size_t bytes = base::round_up(needs[i].bytes, alignment);
    const size_t begin = first_gap(live, bytes);
    const Live placed{begin, begin + bytes, last_step[i]};
    live.insert(std::upper_bound(live.begin(), live.end(), placed,
                                 [](const Live& a, const Live& b) { return a.begin < b.begin; }),
                placed);
    plan.offsets.push_back(begin);
    plan.bytes = std::max(plan.bytes, placed.end);
  }
  return plan;
}

}  // namespace assay::lower
