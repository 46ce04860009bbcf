// For tests: three ops that nothing but this file knows, in a plan whose other ops are a small decoder's. They run
// everywhere all the same (docs/design/add-an-op.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ops/linear/linear.h"
#include "ops/plan/cached_run.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/plan.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"
#include "ops/rows/gate.h"
#include "ops/state/state.h"

namespace assay::test {

// An op that no backend has a kernel for: y = 1 - x. All that there is to say of an op stands here.
struct Toy {
  ops::ValueId x, y;
  static constexpr const char* kKind = "toy";
  static constexpr ops::Role kRole = ops::Role::row;
  static constexpr bool kInPlace = true;
  void fields(ops::FieldVisitor& f) { f.reads(x), f.writes(y); }
  void check(const ops::CheckScope& s) const { s.expect(s.width(y), s.width(x), "columns"); }
  void shard(ops::ShardScope& s) const {
    Toy part = *this;
    part.x = s.whole_of(x), part.y = s.make(y, {});
    s.enter({}, [&](size_t) { return part; });
  }
  ops::OpWork work(const ops::WorkScope&) const { return {}; }
  template <class T>
  void run_rows(const ops::HostRows<T>& rows, int64_t begin, int64_t end) const noexcept {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < rows.width(y); ++j) rows.row(y, i)[j] = T(1) - rows.row(x, i)[j];
    }
  }
  void run(const ops::HostRows<float>& rows, int64_t begin, int64_t end) const noexcept { run_rows(rows, begin, end); }
  void run(const ops::HostRows<double>& rows, int64_t begin, int64_t end) const noexcept { run_rows(rows, begin, end); }
};

// Another one, that keeps a state: y = the sum of x so far.
struct ToyState {
  ops::ValueId x;
  int32_t at;
  ops::ValueId y;
  static constexpr const char* kKind = "toy_state";
  static constexpr ops::Role kRole = ops::Role::state;
  void fields(ops::FieldVisitor& f) { f.reads(x), f.state(at), f.writes(y); }
  void check(const ops::CheckScope& s) const {
    s.expect(s.width(y), s.width(x), "columns");
    if (s.domain(x) != ops::RowDomain::tokens) s.refuse("a state over selected tokens");
  }
  void shard(ops::ShardScope& s) const {
    ToyState part = *this;
    part.x = s.whole_of(x), part.y = s.make(y, {});
    s.enter({}, [&](size_t) { return part; });
  }
  ops::OpWork work(const ops::WorkScope&) const { return {}; }
  template <class T>
  void run_rows(const ops::HostRows<T>& rows, const ops::StateRun<T>& state, int64_t begin,
                int64_t end) const noexcept {
    for (int64_t t = state.begin; t < state.end; ++t) {
      for (int64_t j = begin; j < end; ++j) rows.row(y, t)[j] = state.state[j] += rows.row(x, t)[j];
    }
  }
  void run(const ops::HostRows<float>& rows, const ops::StateRun<float>& state, int64_t begin,
           int64_t end) const noexcept {
    run_rows(rows, state, begin, end);
  }
  void run(const ops::HostRows<double>& rows, const ops::StateRun<double>& state, int64_t begin,
           int64_t end) const noexcept {
    run_rows(rows, state, begin, end);
  }
};

// A third one, that reads the cache: y = x + the sum of key - value over the positions up to its own, the latest first,
// columns of keys and values going round.
struct ToyCached {
  ops::ValueId x;
  int32_t layer;
  ops::ValueId y;
  static constexpr const char* kKind = "toy_cached";
  static constexpr ops::Role kRole = ops::Role::cached;
  void fields(ops::FieldVisitor& f) { f.reads(x), f.cache_layer(layer), f.writes(y); }
  void check(const ops::CheckScope& s) const {
    s.expect(s.width(y), s.width(x), "columns");
    if (s.domain(x) != ops::RowDomain::tokens) s.refuse("keys of selected tokens");
  }
  void shard(ops::ShardScope& s) const {  // the cache is whole in every shard, for more than one op reads it
    ToyCached part = *this;
    part.x = s.whole_of(x), part.y = s.make(y, {});
    s.enter({}, [&](size_t) { return part; });
  }
  ops::OpWork work(const ops::WorkScope&) const { return {}; }
  template <class T>
  void run_rows(const ops::HostRows<T>& rows, const ops::CachedRun<T>& at, int64_t begin, int64_t end) const noexcept {
    const ops::CacheLayer& of = rows.plan->cache_layers[static_cast<size_t>(layer)];
    const int64_t n_k = of.n_kv_heads * of.head_dim, n_v = of.n_kv_heads * of.v_dim();
    for (int64_t t = begin; t < end; ++t) {
      const int32_t last = rows.positions[static_cast<size_t>(t)];
      for (int32_t p = 0; p <= last; ++p) at.order[p] = last - p;
      for (int64_t j = 0; j < rows.width(y); ++j) {
        for (int32_t p = 0; p <= last; ++p)
          at.scratch[p] = at.keys[p * at.k_stride + j % n_k] - at.values[p * at.v_stride + j % n_v];
        T sum = rows.row(x, t)[j];
        for (int32_t i = 0; i <= last; ++i) sum = sum + at.scratch[at.order[i]];
        rows.row(y, t)[j] = sum;
      }
    }
  }
  void run(const ops::HostRows<float>& rows, const ops::CachedRun<float>& at, int64_t begin,
           int64_t end) const noexcept {
    run_rows(rows, at, begin, end);
  }
  void run(const ops::HostRows<double>& rows, const ops::CachedRun<double>& at, int64_t begin,
           int64_t end) const noexcept {
    run_rows(rows, at, begin, end);
  }
};

// Puts `record(x, y)` behind the gate that is op `at`: y stands where its product was read. Returns the new op's place.
template <class Make>
int32_t add_behind(ops::Plan& plan, size_t at, const Make& record) {
  const ops::ValueId x = plan.ops[at].get<ops::Gate>().y, y = static_cast<ops::ValueId>(plan.values.size());
  const ops::Value& gated = plan.values[static_cast<size_t>(x)];
  plan.values.push_back({"toy", gated.width, gated.domain});
  for (size_t i = at + 1; i < plan.ops.size(); ++i) {
    if (auto* linear = plan.ops[i].as<ops::Linear>(); linear != nullptr && linear->x == x) linear->x = y;
  }
  plan.ops.insert(plan.ops.begin() + static_cast<std::ptrdiff_t>(at + 1),
                  ops::Op{ops::Record(record(x, y)), "toy", plan.ops[at].layer});
  return static_cast<int32_t>(at + 1);
}

// Behind the last gate of a plan.
inline int32_t add_toy(ops::Plan& plan) {
  size_t at = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (plan.ops[i].is<ops::Gate>()) at = i;
  }
  return add_behind(plan, at, [](ops::ValueId x, ops::ValueId y) { return Toy{x, y}; });
}

// Behind the first gate, which has rows of all tokens.
inline size_t first_gate(const ops::Plan& plan) {
  size_t at = 0;
  while (!plan.ops[at].is<ops::Gate>()) ++at;
  return at;
}
inline int32_t add_toy_state(ops::Plan& plan) {
  const size_t at = first_gate(plan);
  plan.states.push_back({plan.values[static_cast<size_t>(plan.ops[at].get<ops::Gate>().y)].width, 1});
  return add_behind(plan, at, [](ops::ValueId x, ops::ValueId y) { return ToyState{x, 0, y}; });
}
inline int32_t add_toy_cached(ops::Plan& plan) {
  return add_behind(plan, first_gate(plan), [](ops::ValueId x, ops::ValueId y) { return ToyCached{x, 0, y}; });
}

// The three of them by what they need.
enum class ToyKind { row, state, cached };
inline constexpr ToyKind kToyKinds[] = {ToyKind::row, ToyKind::state, ToyKind::cached};
inline const char* name(ToyKind kind) {
  return kind == ToyKind::row ? Toy::kKind : kind == ToyKind::state ? ToyState::kKind : ToyCached::kKind;
}
inline int32_t add_toy(ops::Plan& plan, ToyKind kind) {
  return kind == ToyKind::row ? add_toy(plan) : kind == ToyKind::state ? add_toy_state(plan) : add_toy_cached(plan);
}

}  // namespace assay::test
