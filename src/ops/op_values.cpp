// See op_values.h.
#include "ops/op_values.h"

#include <iterator>
#include <variant>

namespace assay::ops {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

OpValues values_of(const Op& op) {
  return std::visit(Overloaded{
                        [](const Embed& r) { return OpValues{{}, r.y}; },
                        [](const RmsNorm& r) { return OpValues{{r.x}, r.y}; },
                        [](const Linear& r) { return OpValues{{r.x}, r.y}; },
                        [](const Rope& r) { return OpValues{{r.x}, r.y}; },
                        [](const KvStore& r) { return OpValues{{r.k, r.v}, kNone}; },
                        [](const Attention& r) { return OpValues{{r.q}, r.y}; },
                        [](const Add& r) { return OpValues{{r.a, r.b}, r.y}; },
                        [](const Gate& r) { return OpValues{{r.gate, r.up}, r.y}; },
                        [](const SelectOutputs& r) { return OpValues{{r.x}, r.y}; },
                        [](const Gather& r) { return OpValues{{r.x}, r.y}; },
                    },
                    op.record);
}

ValueId announced_value(const Op& op) {
  const OpValues values = values_of(op);
  const bool passes_on = std::holds_alternative<KvStore>(op.record) || std::holds_alternative<SelectOutputs>(op.record);
  return passes_on ? values.inputs[0] : values.output;
}

const char* kind_name(const Op& op) noexcept {
  constexpr const char* kNames[] = {"embed", "rms_norm", "linear", "rope", "kv_store", "attention", "add", "gate", "select_outputs", "gather"};
  static_assert(std::size(kNames) == std::variant_size_v<decltype(Op::record)>);
  return kNames[op.record.index()];
}

}  // namespace assay::ops
