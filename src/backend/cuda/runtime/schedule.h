// A Plan turned into units for the GPU: the ops that one kernel runs together. Made once per executor; no bit depends on it.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/plan/executor.h"
#include "ops/rows/gate.h"
#include "ops/linear/linear.h"
#include "ops/plan/plan.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

// A value's rows as integers, for all linears that read the value with this kind of activation.
struct QuantisedValue {
  ops::ValueId x = ops::kNone;
  quant::Activation kind = quant::Activation::a32;
  int32_t first_step = 0, last_step = 0;
};

struct Unit {
  enum class Kind {
    op,         // one op alone
    quantise,   // a value's integers alone
    norm,       // [rms_norm,] [add,] rms_norm over whole rows [, integers]
    heads,      // [rms_norm of heads,] rope of q and k, kv_store
    gate,       // gate, integers
    attention,  // attention [, integers]
    linears,    // products of the same activations
    experts,    // one product by the experts of each token, alone
    borrowed,   // one op that has no kernel here: its reference runs on the host (borrow.h)
  };
  Kind kind = Kind::op;
  std::vector<int32_t> ops;           // in the plan's order, in which an observer sees them
  int32_t quantised = ops::kNone;     // what the unit makes; of linears and experts: what they read, kNone: the floats
  // Of norm and heads: which op is which, kNone where there is none.
  int32_t pre_norm = ops::kNone, add = ops::kNone, norm = ops::kNone;
  int32_t q_norm = ops::kNone, q_rope = ops::kNone, k_norm = ops::kNone, k_rope = ops::kNone, store = ops::kNone;
};

struct Lifetime {
  int32_t first_step = 0, last_step = 0;
};

// Units that decode of one token runs as one kernel (decode_groups.h).
struct DecodeGroup {
  enum class Kind {
    unit,       // a unit as it is, but for integers that no one reads then
    linears,    // [norm,] products that make the integers of their row [, gate]
    attention,  // heads, attention
    nothing,    // what the readers do themselves
  };
  Kind kind = Kind::unit;
  std::vector<int32_t> units;  // in their order
  Unit alone;
  int32_t norm = ops::kNone, linears = ops::kNone, gate = ops::kNone, heads = ops::kNone, attention = ops::kNone;
  // An op: the sum that the norm of the next group begins with, which the products of this one make as they write; that group finds it made.
  int32_t adds = ops::kNone;
  bool is_added = false;
  bool reader_is_narrow = false;  // attention, right ahead of a product for which decode_is_narrow()
  // Of a shard, ops: the gather whose row these kernels send themselves, and the one for whose row they wait.
  int32_t sends = ops::kNone, waits = ops::kNone;
  // `columns`: one product of the shard's own columns (ops::Linear::columns), whose sums go to all, where the
  // readers add them; its row is not sent by who makes it (`keeps`).
  bool columns = false, keeps = false;
};

struct Schedule {
  std::vector<Unit> units;  // in the order in which they run
  std::vector<DecodeGroup> decode;      // all of them, in groups
  std::vector<int32_t> group_of_unit;   // the steps in which lifetimes count
  std::vector<int32_t> column_linears;  // ops: the products of groups with `columns`
  std::vector<QuantisedValue> quantised;
  std::vector<Lifetime> lifetimes;           // per value of the plan
  std::vector<bool> read_outside;            // per value: whether a unit other than its own reads it as floats
  std::vector<bool> read_by_other_groups;    // the same for groups, whose products read floats
  std::vector<ops::ValueId> selected_from;   // per value: of which it is the selected rows, or kNone
};

// Whether the unit's `quantised` is what it reads.
constexpr bool reads_quantised(Unit::Kind kind) noexcept { return kind == Unit::Kind::linears || kind == Unit::Kind::experts; }

// Attention and its cache as the fast kernels know them; others run attention_any (attention.h).
bool is_usual(const ops::Plan& plan, const ops::Attention& attention) noexcept;
// A gate that may be fused with what is around it: SiLU or GELU by tanh, element by element.
bool is_usual(const ops::Plan& plan, const ops::Gate& gate) noexcept;

Schedule make_schedule(const ops::Plan& plan, const ops::ExecutorOptions& options);

}  // namespace assay::backend::cuda
