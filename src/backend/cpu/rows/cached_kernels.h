// What the table of ops that read the cache (cached_table.h) has kernels for: cached_kernels.cpp.
#pragma once

#include <cstddef>

#include "ops/plan/plan.h"

namespace assay::backend::cpu {

struct RunState;

void run_choose_keys(const RunState& state, const ops::Op& op);
size_t choose_keys_bytes(const RunState& state, const ops::Op& op);
void run_sparse_attention(const RunState& state, const ops::Op& op);
size_t sparse_attention_bytes(const RunState& state, const ops::Op& op);

}  // namespace assay::backend::cpu
