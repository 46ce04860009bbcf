// One query of the faulty engine's attention: scores, softmax, weighted sum, key by key.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "faulty/fault.h"
#include "faulty/plain_cache.h"
#include "ops/attention/attention.h"
#include "ops/plan/plan.h"

namespace assay::faults {

struct PlainAttention {
  const ops::Attention& op;
  const PlainCache& cache;
  Fault fault;
  int64_t d_model;
  int64_t v_dim;                 // elements of a value
  std::span<const float> sinks;  // of every head, or none
  int sequence;
  int64_t position;
  int64_t run_start;     // the first position of this sequence in the running batch
  int64_t run_n_tokens;  // how many of its tokens run

  // q, y: head_dim and v_dim floats of one query head.
  void run(const float* q, int64_t head, float* y) const;

 private:
  bool is(Fault f) const { return fault == f; }
  std::vector<int64_t> visible() const;  // positions, ascending; of the cells that are read
  int64_t kv_head(int64_t head) const;
  float score(const float* q, const float* k) const;
};

}  // namespace assay::faults
