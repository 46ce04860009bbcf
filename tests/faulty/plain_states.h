// What the faulty engine keeps of ops with a state (ops/state/state.h): all states of every sequence after each of its
// tokens, so that any position can be gone back to. The ops themselves are run by their formulas in float64.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "faulty/fault.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/plan.h"
#include "ops/state/state.h"

namespace assay::faults {

class PlainStates {
 public:
  PlainStates(const ops::Plan& plan, int n_sequences, Fault fault);

  void begin_run() { begins_.assign(begins_.size(), true); }
  // One token of an op with a state: row `token` of the values.
  void run(const ops::Op& op, const ops::HostRows<double>& rows, int64_t token, int sequence, int64_t position);
  void truncate(int sequence, int64_t n_positions);
  void visit(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  using Floats = std::vector<double>;
  Floats& now(int sequence, int32_t state) { return now_[static_cast<size_t>(sequence)][static_cast<size_t>(state)]; }

  const ops::Plan& plan_;
  Fault fault_;
  std::vector<std::vector<Floats>> now_;                             // [sequence][state]
  std::vector<std::map<int64_t, std::map<int32_t, Floats>>> after_;  // by sequence, and by number of positions
  std::vector<bool> begins_;  // [sequence * n_states + state]: no token of this run has come yet
};

}  // namespace assay::faults
