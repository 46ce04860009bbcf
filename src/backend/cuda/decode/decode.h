// Decode of one token: products that make the row they read for themselves (norm, integers), and write what follows
// from it at once (the gate). Contracts as of the single ops. Between two such products no other kernel runs but
// attention.
//
//   block of threads, one a multiprocessor
//     all          [sum] -> [norm] -> integers of the row        its own shared memory, every block for itself (decode_row.cuh)
//     meanwhile    weights of the first rows                     on their way from memory to shared memory: rings of the warps for blocks
//                                                                of 32 and floats (decode_ring.cuh), steps for superblocks (decode_steps.cuh)
//     a warp       4 rows at a time, a lane one chunk of one     integers -> one float term a block -> 8 chains a row, registers
//                  the tree over the chunks: 3 shuffles          y, and what follows from it: gate, residual, other GPUs' copies
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/kernels/decode_table.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/rows/gather.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/plan/plan.h"
#include "ops/rows/activation.h"

namespace assay::backend::cuda {

// The row that the products read: a; or, where w is not null, rms_norm(a), rms_norm(a + b) or rms_norm(a +
// rms_norm(b)). A null pointer among the outputs means that nobody reads that value.
struct DecodeSource {
  const float* a = nullptr;
  const float* b = nullptr;      // null: nothing is added
  const float* pre_w = nullptr;  // null: b is added as it is
  float pre_eps = 0;
  const float* w = nullptr;  // null: no norm
  float eps = 0;
  int32_t d = 0;
  float* pre_y = nullptr;
  float* sum = nullptr;
  float* y = nullptr;
  ShardWait wait;  // of a shard: for a or b
  ShardSums sums;  // of a shard, in the place of b: what all have summed of it
};

// What follows: y = activation(first) * second of two linears of one shape and type (not F32).
struct DecodeGate {
  float* y = nullptr;  // null: no gate
  ops::ActivationFunction activation = ops::ActivationFunction::silu;
  GatherTask send = {};  // of a shard: the one linear's y, or this y, goes to the others too
  const float* residual =
      nullptr;  // of one linear without a gate: sum = residual + y, which a norm will read; null: nothing is added
  float* sum = nullptr;
  // Of a shard: the one linear, no gate. Its matrix is the shard's columns of all rows, n of which follow one another
  // as if they were one row of all columns, n being the shards; a is those columns. What is made are the shard's sums.
  SumsTask sums = {};
};

// kernel: of the row that all of them have (kernels/decode_table.h), but for a router's. linears: 1 .. kLinearsMax of
// them; y of one may be null with a gate.
void decode_linears(DecodeKernel kernel, const DecodeSource& source, std::span<const LinearTask> linears,
                    const DecodeGate& gate, int planes, const Queue& queue);

// Those of one row of the table, one file each, for they compile long.
void decode_linears_256(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                        int planes, const Queue& queue);
void decode_linears_32(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                       int planes, const Queue& queue);
void decode_linears_float(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                          const Queue& queue);

}  // namespace assay::backend::cuda
