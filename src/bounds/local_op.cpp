// See local_op.h. The ops but Linear and Attention, which have files of their own.
#include "bounds/local_op.h"

#include <algorithm>
#include <iterator>

#include "assay/error.h"
#include "base/index.h"
#include "bounds/attention_bound.h"
#include "bounds/choice_bound.h"
#include "bounds/expert_bound.h"
#include "bounds/linear_bound.h"
#include "bounds/row_bound.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/embed/embed_position.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/gather.h"
#include "ops/linear/linear.h"
#include "ops/linear/sparse_gate.h"
#include "ops/plan/float64.h"
#include "ops/rows/activate.h"
#include "ops/rows/activation.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
#include "ops/rows/clamp.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/l2_norm.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/match_magnitude.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_by_position.h"
#include "ops/rows/scale_columns.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "ops/rows/xielu.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"

namespace assay::bounds {
namespace {

// The norm weights and biases that an op has.
void take_vectors(RowScope& s, const ops::RmsNorm& op) {
  if (op.w != ops::kNone) s.weights = ops::vector_of(s.in.plan.weights[at(op.w)]);
}
void take_vectors(RowScope& s, const ops::LayerNorm& op) {
  if (op.w != ops::kNone) s.weights = ops::vector_of(s.in.plan.weights[at(op.w)]);
  if (op.bias != ops::kNone) s.biases = ops::vector_of(s.in.plan.weights[at(op.bias)]);
}
void take_vectors(RowScope& s, const ops::AddColumns& op) { s.weights = ops::vector_of(s.in.plan.weights[at(op.w)]); }
void take_vectors(RowScope& s, const ops::ScaleColumns& op) { s.weights = ops::vector_of(s.in.plan.weights[at(op.w)]); }
template <class Record>
void take_vectors(RowScope&, const Record&) {}

int64_t n_rows_of(const OpInputs& in) {
  return in.op.is<ops::Embed>() || in.op.is<ops::EmbedPosition>() ? static_cast<int64_t>(in.tokens.size()) : in.a.n;
}

template <class Record>
Expected small_op(const OpInputs& in, const Record& record, const Declared& declared, base::ThreadPool& pool,
                  const LocalOptions& options) {
  const int64_t n = n_rows_of(in), width = in.plan.values[at(record.y)].width * rows_joined(in.plan, in.op, record.y);
  RowScope scope(in, declared);
  take_vectors(scope, record);
  Expected e;
  e.y.resize(at(n * width));
  e.bound.resize(e.y.size());
  const auto row = [&](std::vector<double>& all, int64_t i) {
    return std::span(all).subspan(at(i * width), at(width));
  };
  pool.run(n, [&](int64_t i, int) { bound_row(scope, record, i, {row(e.y, i), row(e.bound, i)}); });
  if (options.chain != nullptr) {
    const OpInputs of_chain{in.plan, in.op, options.chain->a, options.chain->b, in.tokens, in.positions, {}};
    RowScope chain(of_chain, declared);
    take_vectors(chain, record);
    options.chain->y.resize(e.y.size());
    std::vector<std::vector<double>> unused(at(pool.n_threads()), std::vector<double>(at(width)));
    pool.run(n, [&](int64_t i, int thread) {
      bound_row(chain, record, i, {row(options.chain->y, i), unused[at(thread)]});
    });
  }
  return e;
}

Expected nothing(const OpInputs&, const Declared&, base::ThreadPool&, const LocalOptions&) { return {}; }

using BoundOf = Expected (*)(const OpInputs&, const Declared&, base::ThreadPool&, const LocalOptions&);
struct BoundRow {
  const void* op;  // its type
  BoundOf bound;
};
template <class R>
BoundRow small() {
  return {ops::Record::type_of<R>(),
          [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
            return small_op(in, in.op.get<R>(), declared, pool, options);
          }};
}

BoundOf find_bound(const ops::Op& op) {
  static const BoundRow kBounds[] = {
      {ops::Record::type_of<ops::Linear>(),
       [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_linear(in, in.op.get<ops::Linear>(), declared, pool, options);
       }},
      {ops::Record::type_of<ops::Attention>(),
       [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_attention(in, in.op.get<ops::Attention>(), declared, pool, options);
       }},
      {ops::Record::type_of<ops::ChooseKeys>(),
       [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_choice(in, in.op.get<ops::ChooseKeys>(), declared, pool, options);
       }},
      {ops::Record::type_of<ops::SparseAttention>(),
       [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_sparse_attention(in, in.op.get<ops::SparseAttention>(), declared, pool, options);
       }},
      {ops::Record::type_of<ops::KvStore>(), nothing},
      {ops::Record::type_of<ops::CausalConv>(), nothing},  // by state_bound.h
      {ops::Record::type_of<ops::DeltaRule>(), nothing},
      {ops::Record::type_of<ops::SelectiveScan>(), nothing},
      {ops::Record::type_of<ops::Gather>(), nothing},
      small<ops::Embed>(),
      small<ops::RmsNorm>(),
      small<ops::Rope>(),
      small<ops::Add>(),
      small<ops::Gate>(),
      small<ops::SelectOutputs>(),
      small<ops::LayerNorm>(),
      small<ops::Scale>(),
      small<ops::ScaleColumns>(),
      small<ops::AddColumns>(),
      small<ops::L2Norm>(),
      small<ops::SparseGate>(),
      small<ops::MatchMagnitude>(),
      small<ops::ScaleByPosition>(),
      small<ops::Softcap>(),
      small<ops::Clamp>(),
      small<ops::Activate>(),
      small<ops::Xielu>(),
      small<ops::EmbedPosition>(),
      small<ops::ExpertSum>(),
      small<ops::ExpertScale>(),
      small<ops::ClampedGate>(),
      small<ops::Slice>(),
      small<ops::Join>(),
      {ops::Record::type_of<ops::Route>(),
       [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_route(in, in.op.get<ops::Route>(), declared, pool, options);
       }},
      {ops::Record::type_of<ops::ExpertLinear>(),
       [](const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
         return local_expert_linear(in, in.op.get<ops::ExpertLinear>(), declared, pool, options);
       }},
  };
  const auto* found = std::ranges::find(kBounds, op.record.type(), &BoundRow::op);
  return found == std::end(kBounds) ? nullptr : found->bound;
}

}  // namespace

int64_t rows_joined(const ops::Plan& plan, const ops::Op& op, ops::ValueId id) noexcept {
  return op.record.rows_alike() ? 1 : plan.values[at(id)].domain.n_ranks;
}

Expected local_op(const OpInputs& in, const Declared& declared, base::ThreadPool& pool, const LocalOptions& options) {
  const BoundOf bound = find_bound(in.op);
  if (bound == nullptr)
    throw Error(Errc::unsupported,
                in.op.name + ": there is no bound for " + in.op.record.kind() + ", so it cannot be verified");
  return bound(in, declared, pool, options);
}

}  // namespace assay::bounds
