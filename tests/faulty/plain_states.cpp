// See plain_states.h.
#include "faulty/plain_states.h"

#include <algorithm>

#include "ops/plan/op_values.h"
#include "ops/state/causal_conv.h"

namespace assay::faults {
namespace {

// Rows of a convolution's past, oldest first, one place further back: the newest is gone. kept: of one unit,
// [rows][32].
void lose_newest_row(std::span<double> kept) {
  const auto row = static_cast<size_t>(ops::kConvColumns);
  std::copy(kept.begin() + static_cast<std::ptrdiff_t>(row), kept.end(), kept.begin());
  std::ranges::fill(kept.last(row), 0.0);
}

}  // namespace

PlainStates::PlainStates(const ops::Plan& plan, int n_sequences, Fault fault)
    : plan_(plan), fault_(fault), after_(static_cast<size_t>(n_sequences)),
      begins_(static_cast<size_t>(n_sequences) * plan.states.size(), true) {
  std::vector<Floats> empty;
  for (const ops::StateLayer& layer : plan.states) empty.emplace_back(static_cast<size_t>(layer.n_floats()), 0.0);
  now_.assign(static_cast<size_t>(n_sequences), empty);
}

void PlainStates::run(const ops::Op& op, const ops::HostRows<double>& rows, int64_t token, int sequence,
                      int64_t position) {
  const int32_t state = ops::state_of(op);
  const ops::StateLayer& layer = plan_.states[static_cast<size_t>(state)];
  const size_t at = static_cast<size_t>(sequence) * plan_.states.size() + static_cast<size_t>(state);
  Floats& floats = now(sequence, state);
  if (begins_[at] && position > 0 && fault_ == Fault::conv_tail_off_by_one && op.is<ops::CausalConv>()) {
    for (int64_t unit = 0; unit < layer.n_units; ++unit) {
      lose_newest_row(std::span(floats).subspan(static_cast<size_t>(unit * layer.unit_floats),
                                                static_cast<size_t>(layer.unit_floats)));
    }
  }
  begins_[at] = false;
  op.record.run(rows, ops::StateRun<double>{token, token + 1, floats.data()}, 0, layer.n_units);
  after_[static_cast<size_t>(sequence)][position + 1][state] = floats;
}

void PlainStates::truncate(int sequence, int64_t n_positions) {
  auto& after = after_[static_cast<size_t>(sequence)];
  after.erase(after.upper_bound(n_positions), after.end());
  if (fault_ == Fault::state_not_reset) return;
  for (size_t i = 0; i < plan_.states.size(); ++i) {
    Floats& floats = now(sequence, static_cast<int32_t>(i));
    if (n_positions == 0) {
      std::fill(floats.begin(), floats.end(), 0.0);
    } else if (const auto found = after.find(n_positions); found != after.end()) {
      floats = found->second.at(static_cast<int32_t>(i));
    }
  }
}

void PlainStates::visit(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const {
  for (const Floats& floats : now_[static_cast<size_t>(sequence)]) {
    const std::vector<float> shown(floats.begin(), floats.end());
    sink(std::as_bytes(std::span(shown)));
  }
}

}  // namespace assay::faults
