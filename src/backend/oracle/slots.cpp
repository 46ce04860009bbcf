// See slots.h.
#include "backend/oracle/slots.h"

#include <algorithm>

#include "ops/plan/op_values.h"

namespace assay::backend::oracle {

Slots::Slots(const ops::Plan& plan, int64_t n_tokens_max, int64_t n_outputs_max) : slot_of_(plan.values.size(), 0) {
  std::vector<size_t> last_reader(plan.values.size(), 0);  // index of an op
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    for (const ops::ValueId id : ops::values_of(plan.ops[i]).inputs) last_reader[static_cast<size_t>(id)] = i;
  }
  std::vector<uint64_t> slot_elements;
  std::vector<size_t> free;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (ops::values_of(plan.ops[i]).output != ops::kNone) {
      const ops::ValueId id = ops::values_of(plan.ops[i]).output;
      if (free.empty() || id == plan.output()) {  // the logits stay valid after the run: a slot of their own
        free.push_back(slot_elements.size());
        slot_elements.push_back(0);
      }
      const ops::Value& value = plan.values[static_cast<size_t>(id)];
      const size_t slot = free.back();
      free.pop_back();
      slot_of_[static_cast<size_t>(id)] = slot;
      const int64_t n_rows = value.domain == ops::RowDomain::outputs ? n_outputs_max : n_tokens_max;
      slot_elements[slot] = std::max(slot_elements[slot], static_cast<uint64_t>(n_rows * value.width));
    }
    std::vector<ops::ValueId> reads = ops::values_of(plan.ops[i]).inputs;
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    for (const ops::ValueId id : reads) {
      if (last_reader[static_cast<size_t>(id)] == i) free.push_back(slot_of_[static_cast<size_t>(id)]);
    }
  }
  for (const uint64_t elements : slot_elements) memory_.emplace_back(elements * sizeof(double), "the oracle's activations");
}

size_t Slots::bytes() const noexcept {
  size_t sum = 0;
  for (const base::AlignedBuffer& buffer : memory_) sum += buffer.size();
  return sum;
}

}  // namespace assay::backend::oracle
