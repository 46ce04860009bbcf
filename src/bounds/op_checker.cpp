// See op_checker.h.
#include "bounds/op_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "assay/error.h"
#include "base/index.h"
#include "bounds/judge.h"
#include "bounds/state_bound.h"
#include "ops/attention/attention.h"
#include "ops/attention/choose_keys.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/attention/sparse_attention.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/select_outputs.h"
#include "ops/state/causal_conv.h"

namespace assay::bounds {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 18;   // of an output that is judged at once
constexpr int64_t kFailedElements = int64_t{1} << 22;  // of a failed op's output that are kept

// What is known of a value in the running batch.
struct Held {
  bool known = false;
  std::vector<double> observed;  // as found; or as computed in its place, and then:
  std::vector<double> error;
  std::vector<double> chain;
  int n_readers = 0;  // ops that still have to read it

  void forget() { *this = Held{}; }
};

template <class Record>
const Record* as(const ops::Op& op) {
  return op.as<Record>();
}
using ops::passes_on;

// The layer of the cache that it reads; kNone: none.
int32_t layer_read(const ops::Op& op) {
  return op.record.role() == ops::Role::store ? ops::kNone : ops::cache_layer_of(op);
}

// Elements of one head in each value, where a value has heads: as the ops that read or write it
// say.
std::vector<int64_t> head_dims(const ops::Plan& plan) {
  std::vector<int64_t> dims(plan.values.size(), 0);
  const auto set = [&](ops::ValueId id, int64_t dim) { dims[at(id)] = dim; };
  for (const ops::Op& op : plan.ops) {
    if (const auto* rope = as<ops::Rope>(op)) set(rope->x, rope->head_dim), set(rope->y, rope->head_dim);
    if (const auto* attention = as<ops::Attention>(op))
      set(attention->q, attention->head_dim), set(attention->y, plan.cache_layers[at(attention->layer)].v_dim());
    if (const auto* sparse = as<ops::SparseAttention>(op))
      set(sparse->q, sparse->head_dim), set(sparse->y, plan.cache_layers[at(sparse->layer)].v_dim());
    if (const auto* choice = as<ops::ChooseKeys>(op)) set(choice->q, choice->head_dim);
    if (const auto* norm = as<ops::RmsNorm>(op); norm != nullptr && norm->d < plan.values[at(norm->x)].width) {
      set(norm->x, norm->d), set(norm->y, norm->d);
    }
    if (const auto* store = as<ops::KvStore>(op)) {
      const ops::CacheLayer& layer = plan.cache_layers[at(store->layer)];
      set(store->k, layer.head_dim);
      if (store->v != ops::kNone) set(store->v, layer.v_dim());
    }
  }
  return dims;
}

// Rows `rows` of an array [n, width]; of nothing, nothing.
std::vector<double> gather(std::span<const double> from, int64_t width, std::span<const int64_t> rows) {
  std::vector<double> to;
  if (from.empty()) return to;
  to.reserve(rows.size() * at(width));
  for (const int64_t row : rows) {
    const std::span<const double> one = from.subspan(at(row * width), at(width));
    to.insert(to.end(), one.begin(), one.end());
  }
  return to;
}

// Room for exactly n_more values: a history that doubled would hold twice what is known.
void make_room(std::vector<double>& values, size_t n_more) { values.reserve(values.size() + n_more); }

void append(std::vector<double>& to, std::span<const double> from) { to.insert(to.end(), from.begin(), from.end()); }

// Errors follow values; where only some rows have them, the others have none.
void append_error(std::vector<double>& errors, size_t n_values_before, std::span<const double> from, size_t n) {
  if (from.empty() && errors.empty()) return;
  errors.resize(n_values_before, 0.0);
  if (from.empty()) {
    errors.resize(n_values_before + n, 0.0);
  } else {
    append(errors, from);
  }
}

void cut(KvHistory& history, int64_t n_positions) {
  const auto cut_to = [](std::vector<double>& part, size_t n) {
    if (part.size() > n) part.resize(n);
  };
  for (std::vector<double>* part : {&history.k, &history.k_error, &history.k_stored})
    cut_to(*part, at(n_positions * history.width));
  for (std::vector<double>* part : {&history.v, &history.v_error, &history.v_stored})
    cut_to(*part, at(n_positions * history.v_width));
}

}  // namespace

struct OpChecker::State {
  State(const ops::Plan& p, const Declared& d, int64_t ctx, int sequences, base::ThreadPool& threads, CheckerOptions o);

  void begin(const ops::Batch& batch);
  void start_sequences();
  void take_back_states(int sequence, int64_t start);
  int32_t find(const ops::Op& op) const;
  void announce(int32_t i_op, int64_t n, int64_t width, std::span<const double> found);
  void end();
  void run_missing(int32_t i_op);
  void run(int32_t i_op,
           std::span<const double> found);  // found empty: the op is computed in its place
  void run_state(int32_t i_op, std::span<const double> found);
  void run_linear_blocks(int32_t i_op, const OpInputs& in, std::span<const double> found, Held& out);
  void judge_block(int32_t i_op, const Judged& judged);
  void finish(int32_t i_op);
  void store_keys(const ops::KvStore& op);
  void select(const ops::SelectOutputs& op);
  // of_state: what was expected of an op with a state, which cannot be computed again.
  void note_failure(int32_t i_op, const OpInputs& in, std::span<const double> found,
                    const Expected* of_state = nullptr);
  void make_place(int32_t i_op, const Worst& worst);
  void make_figures();

  const ops::Op& op(int32_t i) const { return plan.ops[at(i)]; }
  const ops::RowDomain& domain(ops::ValueId id) const { return plan.values[at(id)].domain; }
  int64_t width(ops::ValueId id) const { return plan.values[at(id)].width; }
  int64_t n_rows(ops::ValueId id) const {
    return domain(id).n_rows(static_cast<int64_t>(tokens.size()), static_cast<int64_t>(output_tokens.size()));
  }
  // A value as an op is judged by it (local_op.h).
  Rows judged(const ops::Op& of, ops::ValueId id, std::span<const double> values, std::span<const double> error) const {
    const int64_t n_joined = rows_joined(plan, of, id);
    return {n_rows(id) / n_joined, width(id) * n_joined, values, error};
  }
  Rows rows(const ops::Op& of, ops::ValueId id) const {
    return judged(of, id, held[at(id)].observed, held[at(id)].error);
  }
  Rows chain_rows(const ops::Op& of, ops::ValueId id) const { return judged(of, id, held[at(id)].chain, {}); }
  int64_t token_of(const ops::Op& of, int64_t row) const;  // behind a row of its output, as it is judged
  // `all` of the batch, by tokens, for the rows of an op's output.
  std::vector<int32_t> of_rows(const ops::Op& of, const std::vector<int32_t>& all) const;

  const ops::Plan& plan;
  const Declared declared;
  const int64_t n_ctx;
  const int n_sequences;
  base::ThreadPool& pool;
  const CheckerOptions options;
  std::vector<int64_t> head_dim;              // per value; 0: no heads
  std::vector<int32_t> producer;              // per value
  std::vector<std::vector<int32_t>> readers;  // per value
  std::vector<int32_t> store_of_layer;        // per cache layer: its KvStore
  std::map<std::pair<int32_t, std::string_view>, int32_t> by_name;

  // Of the running batch.
  std::vector<int32_t> tokens, positions, sequences;
  std::vector<int64_t> output_tokens;
  std::vector<Held> held;
  std::vector<bool> done;
  std::vector<Tally> batch_tally;
  int64_t i_batch = -1;
  bool running = false;

  std::vector<std::vector<KvHistory>> observed_kv, chain_kv;  // [layer][sequence]
  std::vector<std::vector<StateMemory>> states;               // [state][sequence]
  std::vector<int64_t> n_positions;                           // per sequence
  std::vector<std::map<int, int64_t>> batch_starts;

  std::vector<Tally> tally;  // per op, over all batches
  std::vector<bool> announced;
  std::vector<OpFigures> figures;
  std::unique_ptr<FailedOp> failed;
  std::optional<Place> place;
  std::vector<double> chain_logits;
  std::vector<RoutingTie> ties;
};

OpChecker::State::State(const ops::Plan& p, const Declared& d, int64_t ctx, int sequences_max,
                        base::ThreadPool& threads, CheckerOptions o)
    : plan(p), declared(d), n_ctx(ctx), n_sequences(sequences_max), pool(threads), options(o), head_dim(head_dims(p)),
      producer(p.values.size(), -1), readers(p.values.size()), store_of_layer(p.cache_layers.size(), -1),
      states(p.states.size(), std::vector<StateMemory>(at(sequences_max))), n_positions(at(sequences_max), 0),
      tally(p.ops.size()), announced(p.ops.size(), false) {
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const ops::OpValues values = ops::values_of(plan.ops[i]);
    if (values.output != ops::kNone) producer[at(values.output)] = static_cast<int32_t>(i);
    for (const ops::ValueId id : values.inputs) readers[at(id)].push_back(static_cast<int32_t>(i));
    if (const auto* store = as<ops::KvStore>(plan.ops[i])) store_of_layer[at(store->layer)] = static_cast<int32_t>(i);
    by_name.emplace(std::pair(plan.ops[i].layer, std::string_view(plan.ops[i].name)), static_cast<int32_t>(i));
  }
  for (const ops::CacheLayer& layer : plan.cache_layers) {
    KvHistory empty;
    empty.width = layer.n_kv_heads * layer.head_dim;
    empty.v_width = layer.n_kv_heads * layer.v_dim();
    observed_kv.emplace_back(at(sequences_max), empty);
    chain_kv.emplace_back(at(sequences_max), empty);
  }
}

void OpChecker::State::begin(const ops::Batch& batch) {
  const size_t n = batch.tokens.size();
  if (batch.positions.size() != n || batch.outputs.size() != n ||
      (!batch.sequences.empty() && batch.sequences.size() != n)) {
    throw Error(Errc::bad_request,
                fmt::format("a batch of {} tokens with {} positions, {} sequences and {} output marks", n,
                            batch.positions.size(), batch.sequences.size(), batch.outputs.size()));
  }
  tokens.assign(batch.tokens.begin(), batch.tokens.end());
  positions.assign(batch.positions.begin(), batch.positions.end());
  sequences.assign(batch.sequences.begin(), batch.sequences.end());
  sequences.resize(n, 0);
  output_tokens.clear();
  for (size_t t = 0; t < n; ++t) {
    if (tokens[t] < 0 || tokens[t] >= plan.vocab_size) {
      throw Error(Errc::bad_request,
                  fmt::format("token {} of a batch is {}; the vocabulary has {}", t, tokens[t], plan.vocab_size));
    }
    if (sequences[t] < 0 || sequences[t] >= n_sequences) {
      throw Error(Errc::bad_request,
                  fmt::format("token {} of a batch is of sequence {}; there are {}", t, sequences[t], n_sequences));
    }
    if (batch.outputs[t] != 0) output_tokens.push_back(static_cast<int64_t>(t));
  }
  start_sequences();
  ++i_batch;
  held.assign(plan.values.size(), {});
  for (size_t id = 0; id < held.size(); ++id) held[id].n_readers = static_cast<int>(readers[id].size());
  done.assign(plan.ops.size(), false);
  batch_tally.assign(plan.ops.size(), {});
  chain_logits.clear();
  running = true;
}

// Positions of a sequence ascend by 1 within a batch; where its first one lies before what was run,
// that is run anew.
void OpChecker::State::start_sequences() {
  std::map<int, int64_t> starts;
  std::vector<int64_t> next = n_positions;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const int sequence = sequences[t];
    const bool first = !starts.contains(sequence);
    if (first) {
      starts[sequence] = positions[t];
      if (positions[t] >= 0) next[at(sequence)] = std::min<int64_t>(next[at(sequence)], positions[t]);
    }
    if (positions[t] != next[at(sequence)] || positions[t] >= n_ctx) {
      throw Error(Errc::bad_request, fmt::format("position {} of sequence {} cannot follow {} positions of at most {}",
                                                 positions[t], sequence, next[at(sequence)], n_ctx));
    }
    ++next[at(sequence)];
  }
  for (const auto& [sequence, start] : starts) {
    take_back_states(sequence, start);
    for (std::vector<std::vector<KvHistory>>* histories : {&observed_kv, &chain_kv}) {
      for (std::vector<KvHistory>& layer : *histories) cut(layer[at(sequence)], start);
    }
  }
  n_positions = next;
  batch_starts.push_back(std::move(starts));
}

void OpChecker::State::take_back_states(int sequence, int64_t start) {
  if (states.empty() || start == n_positions[at(sequence)]) return;
  if (start != 0) {
    throw Error(Errc::unsupported, fmt::format("sequence {} is run anew from position {} of {}: what it kept of the "
                                               "tokens before is known at the end alone; "
                                               "run it from position 0",
                                               sequence, start, n_positions[at(sequence)]));
  }
  for (std::vector<StateMemory>& memories : states) memories[at(sequence)] = {};
}

int64_t OpChecker::State::token_of(const ops::Op& of, int64_t row) const {
  const ops::ValueId y = ops::values_of(of).output;
  return domain(y).token_of(row * rows_joined(plan, of, y), output_tokens);
}

std::vector<int32_t> OpChecker::State::of_rows(const ops::Op& of, const std::vector<int32_t>& all) const {
  const ops::ValueId y = ops::values_of(of).output;
  const int64_t n = n_rows(y) / rows_joined(plan, of, y);
  std::vector<int32_t> found;
  found.reserve(at(n));
  for (int64_t row = 0; row < n; ++row) found.push_back(all[at(token_of(of, row))]);
  return found;
}

// The op of our plan: an executor may walk a plan of its own.
int32_t OpChecker::State::find(const ops::Op& wanted) const {
  if (!plan.ops.empty() && &wanted >= &plan.ops.front() && &wanted <= &plan.ops.back())
    return static_cast<int32_t>(&wanted - plan.ops.data());
  const auto found = by_name.find(std::pair(wanted.layer, std::string_view(wanted.name)));
  return found == by_name.end() ? -1 : found->second;
}

void OpChecker::State::announce(int32_t i_op, int64_t n, int64_t values_width, std::span<const double> found) {
  const ops::ValueId id = ops::values_of(op(i_op)).output;
  if (n != n_rows(id) || values_width != width(id) || found.size() != at(n * values_width)) {
    throw Error(Errc::bad_request, fmt::format("{}: needs {} rows of {} values, found {} of {}", op(i_op).name,
                                               n_rows(id), width(id), n, values_width));
  }
  if (done[at(i_op)]) return;  // announced twice, or after what depends on it
  announced[at(i_op)] = true;
  run_missing(i_op);
  run(i_op, found);
}

// Computes what the op needs and nobody announced, in the plan's order.
void OpChecker::State::run_missing(int32_t i_op) {
  std::vector<int32_t> open = {i_op}, missing;
  std::vector<bool> seen(plan.ops.size(), false);
  const auto need = [&](int32_t i) {
    if (i < 0 || done[at(i)] || seen[at(i)]) return;
    seen[at(i)] = true;
    open.push_back(i);
    missing.push_back(i);
  };
  while (!open.empty()) {
    const ops::Op& current = op(open.back());
    open.pop_back();
    for (const ops::ValueId id : ops::values_of(current).inputs) need(producer[at(id)]);
    if (const int32_t layer = layer_read(current); layer != ops::kNone) need(store_of_layer[at(layer)]);
  }
  std::sort(missing.begin(), missing.end());
  for (const int32_t i : missing) {
    if (!done[at(i)]) run(i, {});
  }
}

void OpChecker::State::run(int32_t i_op, std::span<const double> found) {
  const ops::Op& current = op(i_op);
  const ops::OpValues values = ops::values_of(current);
  if (const auto* store = as<ops::KvStore>(current)) store_keys(*store);
  if (const auto* selected = as<ops::SelectOutputs>(current)) select(*selected);
  if (keeps_state(current)) {
    run_state(i_op, found);
  } else if (!passes_on(current) && n_rows(values.output) > 0) {
    const std::vector<int32_t> ids = of_rows(current, tokens), places = of_rows(current, positions);
    std::vector<const KvHistory*> history, chain_history;
    if (const int32_t layer = layer_read(current); layer != ops::kNone) {
      for (const int32_t sequence : of_rows(current, sequences)) {
        history.push_back(&observed_kv[at(layer)][at(sequence)]);
        chain_history.push_back(&chain_kv[at(layer)][at(sequence)]);
      }
    }
    const auto input = [&](size_t i, bool chain) {
      if (i >= values.inputs.size()) return Rows{};
      return chain ? chain_rows(current, values.inputs[i]) : rows(current, values.inputs[i]);
    };
    const OpInputs in{plan, current, input(0, false), input(1, false), ids, places, history, found};
    Held& out = held[at(values.output)];
    std::vector<RouteTie> expected_ties;
    if (as<ops::Linear>(current) != nullptr && !found.empty()) {
      run_linear_blocks(i_op, in, found, out);
    } else {
      ChainOp chain{input(0, true), input(1, true), chain_history, {}};
      Expected expected =
          local_op(in, declared, pool, {.as_declared = !found.empty(), .chain = options.cumulative ? &chain : nullptr});
      expected_ties = std::move(expected.ties);
      if (!found.empty()) {
        const Rows y = judged(current, values.output, found, {});
        judge_block(i_op, {found, y.n, y.width, 0, y.width, expected, chain.y});
        out.observed.assign(found.begin(), found.end());
      } else {
        out.observed = std::move(expected.y);
        out.error = std::move(expected.bound);
      }
      out.chain = std::move(chain.y);
    }
    if (!found.empty() && batch_tally[at(i_op)].n_outside > 0) note_failure(i_op, in, found);
    if (!found.empty() && batch_tally[at(i_op)].n_outside == 0) {
      for (const RouteTie& tie : expected_ties)
        ties.push_back({i_op, in.positions[at(tie.row)], in.tokens[at(tie.row)], tie});
    }
    if (values.output == plan.output()) {
      chain_logits = out.n_readers > 0 ? out.chain : std::move(out.chain);
    }
  }
  finish(i_op);
}

void OpChecker::State::run_state(int32_t i_op, std::span<const double> found) {
  const ops::OpValues values = ops::values_of(op(i_op));
  StateInputs in{plan, op(i_op), {}, {}, sequences};
  for (const ops::ValueId id : values.inputs) {
    in.observed.push_back(rows(op(i_op), id));
    if (options.cumulative) in.chain.push_back(chain_rows(op(i_op), id));
  }
  Held& out = held[at(values.output)];
  std::map<int, std::vector<double>> before;
  if (as<ops::CausalConv>(op(i_op)) != nullptr && !found.empty()) {
    for (const int32_t sequence : sequences) before[sequence] = states[at(ops::state_of(op(i_op)))][at(sequence)].state;
  }
  Expected expected =
      local_state(in, declared, states[at(ops::state_of(op(i_op)))], pool, options.cumulative ? &out.chain : nullptr);
  if (!found.empty()) {
    judge_block(i_op,
                {found, n_rows(values.output), width(values.output), 0, width(values.output), expected, out.chain});
    out.observed.assign(found.begin(), found.end());
    if (batch_tally[at(i_op)].n_outside > 0) {
      const OpInputs first{plan, op(i_op), in.observed[0], {}, tokens, positions, {}, found};
      note_failure(i_op, first, found, &expected);
      if (failed->i_op == i_op && failed->i_batch == i_batch) failed->state_before = std::move(before);
    }
  } else {
    out.observed = std::move(expected.y);
    out.error = std::move(expected.bound);
  }
}

// The widest outputs (logits) would need several times their size at once: they are judged by
// blocks of columns.
void OpChecker::State::run_linear_blocks(int32_t i_op, const OpInputs& in, std::span<const double> found, Held& out) {
  const ops::ValueId x = op(i_op).get<ops::Linear>().x, y = op(i_op).get<ops::Linear>().y;
  const int64_t n = n_rows(y), n_all = width(y);
  const int64_t step = std::max<int64_t>(1024, kBlockElements / n);
  if (options.cumulative) out.chain.resize(at(n * n_all));
  for (int64_t first = 0; first < n_all; first += step) {
    const int64_t n_columns = std::min(step, n_all - first);
    ChainOp chain{chain_rows(op(i_op), x), {}, {}, {}};
    const Expected expected =
        local_op(in, declared, pool,
                 {.chain = options.cumulative ? &chain : nullptr, .first_column = first, .n_columns = n_columns});
    judge_block(i_op, {found, n, n_all, first, n_columns, expected, chain.y});
    if (!options.cumulative) continue;
    for (int64_t row = 0; row < n; ++row)
      std::copy_n(chain.y.begin() + row * n_columns, n_columns, out.chain.begin() + row * n_all + first);
  }
  if (out.n_readers > 0) out.observed.assign(found.begin(), found.end());
}

void OpChecker::State::judge_block(int32_t i_op, const Judged& judged) {
  const Tally block = judge(judged, pool);
  tally[at(i_op)].add(block);
  batch_tally[at(i_op)].add(block);
}

// The op's output is there: lets go what nobody will read, and lets pass on what only passes on.
void OpChecker::State::finish(int32_t i_op) {
  done[at(i_op)] = true;
  const ops::OpValues values = ops::values_of(op(i_op));
  for (const ops::ValueId id : values.inputs) {
    if (--held[at(id)].n_readers == 0) held[at(id)].forget();
  }
  if (values.output == ops::kNone) return;
  Held& out = held[at(values.output)];
  out.known = true;
  if (out.n_readers == 0) out.forget();
  for (const int32_t reader : readers[at(values.output)]) {
    if (done[at(reader)] || !passes_on(op(reader))) continue;
    const std::vector<ops::ValueId> inputs = ops::values_of(op(reader)).inputs;
    if (std::all_of(inputs.begin(), inputs.end(), [&](ops::ValueId id) { return held[at(id)].known; })) run(reader, {});
  }
}

void OpChecker::State::store_keys(const ops::KvStore& store) {
  const ops::CacheLayer& layer = plan.cache_layers[at(store.layer)];
  const Held &k = held[at(store.k)], &v = held[at(layer.values_in_keys ? store.k : store.v)];
  const int64_t n = width(store.k), n_v = layer.n_kv_heads * layer.v_dim();
  const auto row = [&](const std::vector<double>& all, size_t t) {
    return all.empty() ? std::span<const double>() : std::span(all).subspan(t * at(n), at(n));
  };
  const auto value_row = [&](const std::vector<double>& all, size_t t) {
    std::vector<double> found;
    for (int64_t head = 0; head < layer.n_kv_heads && !all.empty(); ++head) {
      const size_t begin =
          layer.values_in_keys ? t * at(n) + at(head * layer.head_dim) : t * at(n_v) + at(head * layer.v_dim());
      append(found, std::span(all).subspan(begin, at(layer.v_dim())));
    }
    return found;
  };
  for (int sequence = 0; sequence < n_sequences; ++sequence) {
    const auto n_tokens = std::count(sequences.begin(), sequences.end(), sequence);
    KvHistory &h = observed_kv[at(store.layer)][at(sequence)], &c = chain_kv[at(store.layer)][at(sequence)];
    make_room(h.k, at(n * n_tokens)), make_room(h.v, at(n_v * n_tokens));
    if (options.cumulative) make_room(c.k, at(n * n_tokens)), make_room(c.v, at(n_v * n_tokens));
  }
  for (size_t t = 0; t < tokens.size(); ++t) {
    KvHistory& h = observed_kv[at(store.layer)][at(sequences[t])];
    append_error(h.k_error, h.k.size(), row(k.error, t), at(n));
    append_error(h.v_error, h.v.size(), value_row(v.error, t), at(n_v));
    append(h.k, row(k.observed, t));
    append(h.v, value_row(v.observed, t));
    if (!options.cumulative) continue;
    KvHistory& c = chain_kv[at(store.layer)][at(sequences[t])];
    append(c.k, row(k.chain, t));
    append(c.v, value_row(v.chain, t));
  }
  for (KvHistory& h : observed_kv[at(store.layer)]) read_back(h, layer, declared);
}

void OpChecker::State::select(const ops::SelectOutputs& selected) {
  const Held& from = held[at(selected.x)];
  Held& to = held[at(selected.y)];
  to.observed = gather(from.observed, width(selected.x), output_tokens);
  to.error = gather(from.error, width(selected.x), output_tokens);
  to.chain = gather(from.chain, width(selected.x), output_tokens);
}

// The first in the order of the plan: what a schedule ran side by side has no order of its own.
void OpChecker::State::note_failure(int32_t i_op, const OpInputs& in, std::span<const double> found,
                                    const Expected* of_state) {
  if (failed != nullptr && (failed->i_batch < i_batch || failed->i_op <= i_op)) return;
  const Worst& worst = batch_tally[at(i_op)].worst;
  const int64_t n = in.a.n > 0 ? in.a.n : static_cast<int64_t>(in.tokens.size());
  const int64_t n_columns = static_cast<int64_t>(found.size()) / n;
  std::vector<int64_t> kept;  // all rows, or as many as memory should hold and the worst one
  const int64_t n_kept = std::clamp<int64_t>(kFailedElements / n_columns, 1, n);
  for (int64_t row = 0; row < n_kept; ++row) kept.push_back(row);
  if (worst.row >= n_kept) kept.back() = worst.row;

  failed = std::make_unique<FailedOp>();
  failed->i_op = i_op;
  failed->i_batch = i_batch;
  failed->n_rows = n_kept;
  failed->a_width = in.a.width, failed->b_width = in.b.width, failed->width = n_columns;
  failed->a = gather(in.a.values, in.a.width, kept);
  failed->b = gather(in.b.values, in.b.width, kept);
  failed->found = gather(found, n_columns, kept);
  const std::vector<int32_t> of_sequences = of_rows(op(i_op), sequences);
  std::vector<const KvHistory*> history;
  for (const int64_t row : kept) {
    failed->tokens.push_back(in.tokens[at(row)]);
    failed->positions.push_back(in.positions[at(row)]);
    failed->sequences.push_back(of_sequences[at(row)]);
    if (!in.history.empty()) history.push_back(in.history[at(row)]);
  }
  if (const int32_t layer = layer_read(op(i_op)); layer != ops::kNone) {
    for (int sequence = 0; sequence < n_sequences; ++sequence) {
      const KvHistory& h = observed_kv[at(layer)][at(sequence)];
      if (h.n_positions() > 0) failed->history.emplace(sequence, h);
    }
  }
  failed->batch_starts = batch_starts;
  if (of_state != nullptr) {
    failed->expected = {gather(of_state->y, n_columns, kept), gather(of_state->bound, n_columns, kept), {}, {}, {}};
    return make_place(i_op, worst);
  }
  const std::vector<double> a_error = gather(in.a.error, in.a.width, kept),
                            b_error = gather(in.b.error, in.b.width, kept);
  const OpInputs again{plan,
                       op(i_op),
                       {in.a.n > 0 ? n_kept : 0, in.a.width, failed->a, a_error},
                       {in.b.n > 0 ? n_kept : 0, in.b.width, failed->b, b_error},
                       failed->tokens,
                       failed->positions,
                       history,
                       failed->found};
  failed->expected = local_op(again, declared, pool);
  make_place(i_op, worst);
}

void OpChecker::State::make_place(int32_t i_op, const Worst& worst) {
  const ops::ValueId id = ops::values_of(op(i_op)).output;
  const int64_t dim = head_dim[at(id)];
  Place p;
  p.op = op(i_op).name;
  p.layer = op(i_op).layer;
  p.row = worst.row;
  const int64_t token = token_of(op(i_op), worst.row);
  p.position = positions[at(token)];
  p.token = tokens[at(token)];
  p.head = dim > 0 ? worst.column / dim : -1;
  p.element = dim > 0 ? worst.column % dim : worst.column;
  p.found = worst.found;
  p.expected = worst.expected;
  p.bound = worst.bound;
  place = p;
}

void OpChecker::State::end() {
  if (!running) return;
  running = false;
  const bool stopped = options.stop_at_first && failed != nullptr;
  for (size_t i = 0; i < plan.ops.size() && !stopped; ++i) {
    if (!done[i]) run(static_cast<int32_t>(i), {});
  }
  held.clear();
  make_figures();
}

void OpChecker::State::make_figures() {
  figures.clear();
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (!announced[i]) continue;
    OpFigures f;
    f.op = plan.ops[i].name;
    f.kind = ops::kind_name(plan.ops[i]);
    f.layer = plan.ops[i].layer;
    tally[i].fill(f);
    figures.push_back(std::move(f));
  }
}

OpChecker::OpChecker(const ops::Plan& plan, const Declared& declared, int64_t n_ctx, int n_sequences,
                     base::ThreadPool& pool, CheckerOptions options)
    : state_(std::make_unique<State>(plan, declared, n_ctx, n_sequences, pool, options)) {}
OpChecker::~OpChecker() = default;

void OpChecker::begin(const ops::Batch& batch) { state_->begin(batch); }

bool OpChecker::wants(const ops::Op& op) {
  const bool stopped = state_->options.stop_at_first && state_->failed != nullptr;
  return state_->running && !stopped && !passes_on(op);
}

void OpChecker::on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) {
  const int32_t i_op = state_->find(op);
  if (i_op < 0 || !wants(state_->op(i_op))) return;
  state_->announce(i_op, n_rows, width, values);
}

void OpChecker::end() { state_->end(); }
const std::vector<OpFigures>& OpChecker::figures() const noexcept { return state_->figures; }
const FailedOp* OpChecker::first_failure() const noexcept { return state_->failed.get(); }
const std::optional<Place>& OpChecker::place() const noexcept { return state_->place; }
const std::vector<RoutingTie>& OpChecker::ties() const noexcept { return state_->ties; }
std::span<const double> OpChecker::chain_logits() const noexcept { return state_->chain_logits; }

}  // namespace assay::bounds
