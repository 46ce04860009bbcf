// The kinds of step (schedule.h), each one parallel region at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/linear/linear_table.h"
#include "backend/cpu/runtime/run_state.h"
#include "backend/cpu/runtime/schedule.h"
#include "ops/attention/attention.h"

namespace assay::backend::cpu {

// Runs the ops of a rows step on the rows of the batch.
void run_row_step(const RunState& state, const Step& step);

// How the rows of a step's linears are cut into units of work.
struct LinearSplit {
  std::vector<int64_t> chunk_rows;   // per task: rows of one unit
  std::vector<int64_t> first_chunk;  // per task, and the number of all units at the end
};

// The linears of one step with all that does not change from run to run.
struct LinearStep {
  std::vector<LinearTask> tasks;
  std::vector<LinearChoice> choices;  // per task: its kernels
  LinearSplit for_few, for_many;      // tokens
};
LinearStep make_linear_step(const RunState& state, const Step& step, const ops::ExecutorOptions& options);
void run_linear_step(const RunState& state, const LinearStep& step, int64_t n_tokens);

// partials: memory for a query's segments when one token attends alone, [n_heads in blocks][segments] of
// partial_floats.
void run_attention_step(const RunState& state, const ops::Attention& op, float* partials);
// An op of Role::state, units shared out among the threads.
void run_state_step(const RunState& state, const Step& step);

size_t attention_partials_bytes(const ops::Attention& op, int64_t v_dim, int64_t n_ctx);

}  // namespace assay::backend::cpu
