// What the ops of one run see: where values lie, the tokens of the batch, tables. Owned by the executor; ops receive it
// by reference.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/runtime/kv_cache.h"
#include "backend/cpu/sets/kernels.h"
#include "base/range_shares.h"
#include "base/thread_pool.h"
#include "ops/attention/rope_table.h"
#include "ops/plan/batch_shape.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/plan.h"
#include "ops/state/state_store.h"
#include "quant/activations.h"

namespace assay::backend::cpu {

struct RunState {
  RunState(const ops::Plan& p, Kernels set, std::string_view row, KvCache& c, ops::StateStore<float>& s,
           base::ThreadPool& threads)
      : plan(p), kernel_set(resolved(set)), kernel_row(row), kernels(make_kernels(set)), cache(c), states(s),
        pool(threads), shares(std::make_unique<base::RangeShares>(threads.n_threads())) {}

  const ops::Plan& plan;
  const Kernels kernel_set;
  const std::string_view kernel_row;  // goes before the set's others; empty: none
  const KernelFunctions kernels;
  KvCache& cache;
  ops::StateStore<float>& states;
  base::ThreadPool& pool;
  int64_t n_ctx = 0;                                // positions of a sequence
  const std::unique_ptr<base::RangeShares> shares;  // of the step at work
  std::vector<float*> values;                       // per value of the plan: its first row
  std::span<const ops::ValueLayout> layouts;        // ... and how its rows lie
  std::vector<const float*> small_weights;          // per weight: norms and biases as aligned f32, else null
  std::vector<quant::Activations> twins;            // per quantised twin (lower/twins.h)
  std::vector<ops::ValueId> twin_values;            // ... and whose rows it holds
  std::vector<ops::RopeTable> rope_tables;          // per rope of the plan
  std::vector<std::byte*> scratch;                  // per thread
  float* read_back = nullptr;                       // a layer's keys and values as floats (rows/cached_table.h)
  ops::HostRows<float> host_rows;                   // the same, as references see it

  // Of the running batch; the spans are the caller's.
  std::span<const int32_t> tokens, positions;
  std::span<const int32_t> sequences;  // may be empty: all 0
  ops::BatchShape shape;

  int64_t n_rows(const ops::RowDomain& domain) const noexcept {
    return domain.n_rows(static_cast<int64_t>(tokens.size()), static_cast<int64_t>(shape.selected.size()));
  }
  int64_t n_rows(ops::ValueId value) const noexcept { return n_rows(plan.values[static_cast<size_t>(value)].domain); }
  int64_t width(ops::ValueId value) const noexcept { return plan.values[static_cast<size_t>(value)].width; }
  float* row(ops::ValueId value, int64_t i) const noexcept {
    return values[static_cast<size_t>(value)] + i * layout(value).stride;
  }
  const ops::ValueLayout& layout(ops::ValueId value) const noexcept { return layouts[static_cast<size_t>(value)]; }
  // A column where a run begins, of a head say.
  float* column(ops::ValueId value, int64_t i, int64_t first) const noexcept {
    return row(value, i) + layout(value).place(first);
  }
  // The token behind row i of a value.
  int64_t token_of(ops::ValueId value, int64_t i) const noexcept {
    return plan.values[static_cast<size_t>(value)].domain.token_of(i, shape.selected);
  }
  int64_t sequence_of(int64_t token) const noexcept {
    return sequences.empty() ? 0 : sequences[static_cast<size_t>(token)];
  }
};

}  // namespace assay::backend::cpu
