// See state_bound.h.
#include "bounds/state_bound.h"

#include <algorithm>
#include <cmath>

#include "assay/error.h"
#include "base/index.h"
#include "bounds/rounding.h"
#include "num/math64.h"
#include "ops/plan/float64.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/op_values.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"

namespace assay::bounds {
namespace {

struct StateRow {
  std::span<const double> values, error;
  double e(size_t j) const { return error.empty() ? 0 : error[j]; }
};

double norm2(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

class StateOp {
 public:
  StateOp(const StateInputs& in, const Declared& declared, std::vector<StateMemory>& memories)
      : in_(in), declared_(declared), memories_(memories), u_(unit(declared)), tiny_(tiny(declared)),
        out_(ops::values_of(in.op).output) {}

  int64_t width() const { return in_.plan.values[at(out_)].width; }
  const ops::StateLayer& layer() const { return in_.plan.states[at(ops::state_of(in_.op))]; }
  int64_t n_errors() const {
    const auto* delta = in_.op.as<ops::DeltaRule>();
    return delta == nullptr ? layer().n_floats() : width();
  }

  // One unit through all rows.
  void run(int64_t unit, Expected& e) const {
    for (size_t t = 0; t < in_.sequences.size(); ++t) {
      StateMemory& memory = memories_[at(in_.sequences[t])];
      if (const auto* op = in_.op.as<ops::CausalConv>()) conv(*op, unit, t, memory, e);
      if (const auto* op = in_.op.as<ops::DeltaRule>()) delta(*op, unit, t, memory, e);
      if (const auto* op = in_.op.as<ops::SelectiveScan>()) scan(*op, unit, t, memory, e);
    }
  }

  void prepare() {
    if (const auto* op = in_.op.as<ops::CausalConv>()) {
      w_ = ops::vector_of(in_.plan.weights[at(op->w)]);
      if (op->bias != ops::kNone) bias_ = ops::vector_of(in_.plan.weights[at(op->bias)]);
    }
    if (const auto* op = in_.op.as<ops::SelectiveScan>()) {
      w_ = ops::vector_of(in_.plan.weights[at(op->a)]);
      if (op->d != ops::kNone) bias_ = ops::vector_of(in_.plan.weights[at(op->d)]);
    }
  }

 private:
  StateRow input(size_t i, size_t t, int64_t first, int64_t n) const {
    const Rows& rows = in_.observed[i];
    const size_t begin = t * at(rows.width) + at(first);
    return {rows.values.subspan(begin, at(n)), rows.error.empty() ? rows.error : rows.error.subspan(begin, at(n))};
  }
  void put(Expected& e, size_t t, int64_t column, double y, double bound) const {
    const size_t i = t * at(width()) + at(column);
    e.y[i] = y, e.bound[i] = bound;
  }

  void conv(const ops::CausalConv&, int64_t unit, size_t t, StateMemory& memory, Expected& e) const {
    const int64_t d = width(), kernel = static_cast<int64_t>(w_.size()) / d, first = unit * ops::kConvColumns,
                  n = std::min(ops::kConvColumns, d - first);
    double *kept = memory.state.data() + unit * layer().unit_floats,
           *kept_error = memory.error.data() + unit * layer().unit_floats;
    const StateRow x = input(0, t, first, n);
    for (int64_t c = 0; c < n; ++c) {
      const double b = bias_.empty() ? 0 : bias_[at(first + c)];
      double sum = 0, magnitude = std::fabs(b), moved = 0;
      for (int64_t k = 0; k < kernel; ++k) {
        const double w = w_[at((first + c) * kernel + k)];
        const double value = k + 1 < kernel ? kept[k * ops::kConvColumns + c] : x.values[at(c)];
        const double off = k + 1 < kernel ? kept_error[k * ops::kConvColumns + c] : x.e(at(c));
        sum += w * value, magnitude += std::fabs(w) * (std::fabs(value) + off), moved += std::fabs(w) * off;
      }
      put(e, t, first + c, sum + b, moved + gamma(static_cast<double>(kernel) + 2, u_) * magnitude + tiny_);
    }
    if (kernel == 1) return;
    std::copy(kept + ops::kConvColumns, kept + (kernel - 1) * ops::kConvColumns, kept);
    std::copy(kept_error + ops::kConvColumns, kept_error + (kernel - 1) * ops::kConvColumns, kept_error);
    for (int64_t c = 0; c < n; ++c)
      kept[(kernel - 2) * ops::kConvColumns + c] = x.values[at(c)],
                                              kept_error[(kernel - 2) * ops::kConvColumns + c] = x.e(at(c));
  }

  // What one token of a head does to column j of S, and what may be off; K, Q, B: largest norms of k and q and
  // strength.
  void delta(const ops::DeltaRule& op, int64_t head, size_t t, StateMemory& memory, Expected& e) const {
    const int64_t d_k = in_.observed[1].width / op.n_key_heads, d_v = in_.observed[2].width / op.n_heads,
                  n_decay = in_.observed[3].width / op.n_heads;
    const StateRow q = input(0, t, op.key_head(head) * d_k, d_k), k = input(1, t, op.key_head(head) * d_k, d_k),
                   v = input(2, t, head * d_v, d_v);
    const StateRow decay = input(3, t, head * n_decay, n_decay), strength = input(4, t, head, 1);
    const double dk = norm2(k.error), dq = norm2(q.error), db = strength.e(0), b = strength.values[0],
                 norm_k = norm2(k.values);
    const double big_k = norm_k + dk, big_q = norm2(q.values) + dq, big_b = std::fabs(b) + db,
                 n_k = static_cast<double>(d_k);
    double e_max = 0, de_max = 0;
    for (size_t i = 0; i < at(n_decay); ++i)
      e_max = std::max(e_max, std::fabs(decay.values[i])), de_max = std::max(de_max, decay.e(i));
    const double keeps = std::max(1.0, std::fabs(1 - b * norm_k * norm_k));
    double* s = memory.state.data() + head * d_k * d_v;
    double* off = memory.error.data() + head * d_v;
    for (int64_t j = 0; j < d_v; ++j) {
      double before = 0, squares = 0, sum = 0;
      for (int64_t i = 0; i < d_k; ++i) {
        double& x = s[i * d_v + j];
        before += x * x;
        x *= decay.values[n_decay == 1 ? 0 : at(i)];
        squares += x * x, sum += x * k.values[at(i)];
      }
      const double of_decay = e_max * off[j] + de_max * (std::sqrt(before) + off[j]),
                   norm_s = std::sqrt(squares) + of_decay;
      const double left = v.values[at(j)] - sum, d = b * left, dv = v.e(at(j));
      const double of_sum = gamma(n_k + 1, u_) * norm_s * big_k + norm_s * dk;  // beside what the state itself is off
      const double big_left = std::fabs(left) + dv + of_sum + big_k * of_decay;
      const double of_d = big_b * (of_sum + dv + gamma(2, u_) * big_left) + db * big_left;
      double after = 0, y = 0;
      for (int64_t i = 0; i < d_k; ++i) {
        double& x = s[i * d_v + j];
        x += k.values[at(i)] * d;
        after += x * x, y += x * q.values[at(i)];
      }
      const double norm_after = std::sqrt(after);
      const double grown = keeps * (of_decay + u_ * norm_s) + big_k * of_d + dk * big_b * big_left;
      off[j] = grown + gamma(2, u_) * (norm_after + grown) + std::sqrt(n_k) * tiny_;
      const double moved = big_q * off[j] + dq * norm_after;
      put(e, t, head * d_v + j, y, moved + gamma(n_k + 1, u_) * (norm_after + off[j]) * big_q + tiny_);
    }
  }

  void scan(const ops::SelectiveScan& op, int64_t head, size_t t, StateMemory& memory, Expected& e) const {
    const int64_t head_dim = width() / op.n_heads, n_state = in_.observed[2].width / op.n_groups,
                  n_a = static_cast<int64_t>(w_.size()) / op.n_heads;
    const StateRow x = input(0, t, head * head_dim, head_dim), dt = input(1, t, head, 1);
    const StateRow b = input(2, t, op.group(head) * n_state, n_state),
                   c = input(3, t, op.group(head) * n_state, n_state);
    const double n_sum =
        declared_.own_sums ? std::ceil(static_cast<double>(n_state) / 32) + 5 : static_cast<double>(n_state);
    const double step = dt.values[0], d_step = dt.e(0), skip = bias_.empty() ? 0 : bias_[at(head)];
    for (int64_t p = 0; p < head_dim; ++p) {
      double* h = memory.state.data() + (head * head_dim + p) * n_state;
      double* off = memory.error.data() + (head * head_dim + p) * n_state;
      const double value = x.values[at(p)], input_u = step * value;
      const double d_u = std::fabs(step) * x.e(at(p)) + d_step * (std::fabs(value) + x.e(at(p)));
      double sum = skip * value, magnitude = std::fabs(skip) * (std::fabs(value) + x.e(at(p))),
             moved = std::fabs(skip) * x.e(at(p));
      for (int64_t n = 0; n < n_state; ++n) {
        const double a = w_[at(head * n_a + (n_a > 1 ? n : 0))], decay = num::exp64(step * a);
        const double argument = d_step * std::fabs(a) + u_ * (std::fabs(step * a) + d_step * std::fabs(a));
        const double d_decay =
            decay * std::expm1(std::min(argument, 700.0)) + gamma(declared_.own_sums ? 2.1 : 8, u_) * decay;
        const double enters = input_u * b.values[at(n)];
        const double d_enters = std::fabs(input_u) * b.e(at(n)) + d_u * (std::fabs(b.values[at(n)]) + b.e(at(n)));
        const double grown = decay * off[n] + d_decay * (std::fabs(h[n]) + off[n]) + d_enters +
                             gamma(3, u_) * (std::fabs(enters) + d_enters);
        const double was = std::fabs(h[n]);
        h[n] = h[n] * decay + enters;
        off[n] = grown + u_ * (std::fabs(h[n]) + was * decay * (declared_.own_sums ? 0 : 1) + grown) + tiny_;
        const double weight = std::fabs(c.values[at(n)]), all = std::fabs(h[n]) + off[n];
        sum += c.values[at(n)] * h[n];
        magnitude += (weight + c.e(at(n))) * all;
        moved += weight * off[n] + c.e(at(n)) * all;
      }
      put(e, t, head * head_dim + p, sum, moved + gamma(n_sum + 2, u_) * magnitude + tiny_);
    }
  }

  const StateInputs& in_;
  const Declared& declared_;
  std::vector<StateMemory>& memories_;
  const double u_, tiny_;
  const ops::ValueId out_;
  std::vector<double> w_, bias_;  // the convolution's; A and D of a scan
};

// The chain's: the record's own formula.
void run_chain(const StateInputs& in, std::vector<StateMemory>& memories, base::ThreadPool& pool,
               std::vector<double>& y) {
  const ops::OpValues ids = ops::values_of(in.op);
  std::vector<double*> values(in.plan.values.size(), nullptr);
  for (size_t i = 0; i < ids.inputs.size(); ++i)
    values[at(ids.inputs[i])] = const_cast<double*>(in.chain[i].values.data());  // read alone
  values[at(ids.output)] = y.data();
  std::vector<std::vector<float>> weights(in.plan.weights.size());
  std::vector<const float*> pointers(in.plan.weights.size(), nullptr);
  struct Vectors final : ops::FieldVisitor {
    std::vector<ops::WeightId> found;
    void vector(ops::WeightId& id) override {
      if (id != ops::kNone) found.push_back(id);
    }
  } vectors;
  in.op.record.fields(vectors);
  for (const ops::WeightId id : vectors.found) {
    for (const double w : ops::vector_of(in.plan.weights[at(id)])) weights[at(id)].push_back(static_cast<float>(w));
    pointers[at(id)] = weights[at(id)].data();
  }
  const ops::HostRows<double> rows{&in.plan, values, pointers, {}, {}, {}, {}};
  pool.run(in.plan.states[at(ops::state_of(in.op))].n_units, [&](int64_t unit, int) {
    for (size_t t = 0; t < in.sequences.size(); ++t) {
      const auto row = static_cast<int64_t>(t);
      in.op.record.run(rows, ops::StateRun<double>{row, row + 1, memories[at(in.sequences[t])].chain.data()}, unit,
                       unit + 1);
    }
  });
}

}  // namespace

bool keeps_state(const ops::Op& op) {
  return op.is<ops::CausalConv>() || op.is<ops::DeltaRule>() || op.is<ops::SelectiveScan>();
}

Expected local_state(const StateInputs& in, const Declared& declared, std::vector<StateMemory>& memories,
                     base::ThreadPool& pool, std::vector<double>* chain_y) {
  StateOp op(in, declared, memories);
  op.prepare();
  const auto n_floats = at(op.layer().n_floats());
  for (const int32_t sequence : in.sequences) {
    StateMemory& memory = memories[at(sequence)];
    memory.state.resize(n_floats), memory.error.resize(at(op.n_errors()));
    if (chain_y != nullptr) memory.chain.resize(n_floats);
  }
  Expected e;
  e.y.resize(in.sequences.size() * at(op.width()));
  e.bound.resize(e.y.size());
  pool.run(op.layer().n_units, [&](int64_t unit, int) { op.run(unit, e); });
  if (chain_y != nullptr) {
    chain_y->resize(e.y.size());
    run_chain(in, memories, pool, *chain_y);
  }
  return e;
}

}  // namespace assay::bounds
