// See slots.h.
#include "backend/oracle/slots.h"

#include <algorithm>
#include <numeric>

#include "lower/lifetimes.h"

namespace assay::backend::oracle {

Slots::Slots(const ops::Plan& plan, int64_t n_tokens_max, int64_t n_outputs_max) : slot_of_(plan.values.size(), 0) {
  const lower::Links links(plan);
  lower::Steps steps{
      std::vector<int32_t>(plan.ops.size()), {}, static_cast<int32_t>(plan.ops.size())};  // each op is one
  std::iota(steps.of_op.begin(), steps.of_op.end(), 0);
  const lower::Twins none{{}, std::vector<int32_t>(plan.ops.size(), ops::kNone)};
  const lower::Lifetimes lifetimes = lower::find_lifetimes(plan, links, none, steps);
  std::vector<std::vector<size_t>> ends(plan.ops.size() + 1);  // by op: the slots that are free behind it
  std::vector<uint64_t> slot_elements;
  std::vector<size_t> free;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (const ops::ValueId id = links.output(static_cast<int32_t>(i)); id != ops::kNone) {
      if (free.empty() || links.is_given_out(id)) {  // the logits stay valid after the run: a slot of their own
        free.push_back(slot_elements.size());
        slot_elements.push_back(0);
      }
      const ops::Value& value = plan.values[static_cast<size_t>(id)];
      const size_t slot = free.back();
      free.pop_back();
      slot_of_[static_cast<size_t>(id)] = slot;
      const int64_t n_rows = value.domain.n_rows(n_tokens_max, n_outputs_max);
      slot_elements[slot] = std::max(slot_elements[slot], static_cast<uint64_t>(n_rows * value.width));
      ends[static_cast<size_t>(lifetimes.values[static_cast<size_t>(id)].last_step)].push_back(slot);
    }
    free.insert(free.end(), ends[i].begin(), ends[i].end());
  }
  for (const uint64_t elements : slot_elements)
    memory_.emplace_back(elements * sizeof(double), "the oracle's activations");
}

size_t Slots::bytes() const noexcept {
  size_t sum = 0;
  for (const base::AlignedBuffer& buffer : memory_) sum += buffer.size();
  return sum;
}

}  // namespace assay::backend::oracle
