// The CPU's kernels of ops that read the KV cache in a way of their own, as a table: an op's type, the function that
// runs it over the whole batch, and the memory that it needs. An op without a row in it runs its scalar reference over
// the sequence's keys and values as read back (ops/plan/cached_run.h), with the same bits.
#pragma once

#include <cstddef>

#include "ops/plan/plan.h"

namespace assay::backend::cpu {

struct RunState;

struct CachedKernel {
  void (*run)(const RunState& state, const ops::Op& op) = nullptr;
  size_t (*thread_bytes)(const RunState& state, const ops::Op& op) = nullptr;  // of every thread's scratch
  size_t (*shared_bytes)(const RunState& state, const ops::Op& op) = nullptr;  // of RunState::read_back; null: none
};

CachedKernel cached_kernel_of(const ops::Op& op) noexcept;
bool is_borrowed(const CachedKernel& kernel) noexcept;  // it runs the reference

}  // namespace assay::backend::cpu
