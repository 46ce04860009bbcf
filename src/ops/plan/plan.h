// The Plan: a model's forward pass as a flat list of op records, built once with the number of tokens left open. The
// CPU, the oracle, trace, verify and the memory planner all walk this list; nobody writes a second forward pass. Each
// op's formula, contract and scalar reference stand in ops/<op>.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/plan/record.h"
#include "ops/plan/row_domain.h"
#include "tensor/view.h"

namespace assay::ops {

// A stream of activations: f32 [rows of the domain, width]. Each value is written by exactly one op
// (static single assignment); executors decide which of them share memory.
struct Value {
  std::string name;  // e.g. "blk.3.attn_norm"
  int64_t width = 0;
  RowDomain domain = RowDomain::tokens;
};

// A tensor of the file; the view points into the file's map, which must outlive the Plan.
struct Weight {
  std::string name;  // e.g. "blk.3.attn_q.weight"
  tensor::TensorView view;
  int64_t stride = 0;  // of columns of a matrix (Linear::columns): from row to row of view.data, in bytes; 0: rows
                       // follow one another
};

// Rotation of pairs by position * inverse_frequency[i], i < dim / 2; cos and sin are made in double, multiplied by
// `magnitude`, rounded once to f32. interleaved: pair i is (2i, 2i + 1); else ("NeoX") it is (i, i + dim / 2). Elements
// from dim on pass through.
struct RopeSpec {
  int64_t dim = 0;
  bool interleaved = true;
  std::vector<double> inverse_frequency;  // dim / 2 values, scaling applied
  double magnitude = 1.0;                 // YaRN's attention factor
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

struct CacheLayer {  // what one layer keeps per position
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;   // elements of a key
  int64_t window = 0;     // 0: all positions are visible
  int64_t value_dim = 0;  // elements of a value of a head; 0: head_dim
  bool values_in_keys =
      false;  // a value is the first v_dim() elements of its key: only keys are stored, in the type of keys
  int64_t v_dim() const noexcept { return value_dim != 0 ? value_dim : head_dim; }
  int64_t stored_v_dim() const noexcept { return values_in_keys ? 0 : v_dim(); }
};

// What one op keeps of a sequence's past, whatever its length: n_units parts of unit_floats floats (a head, some
// columns) that do not depend on one another.
struct StateLayer {
  int64_t n_units = 0, unit_floats = 0;
  int64_t n_floats() const noexcept { return n_units * unit_floats; }
};

struct Op {
  Record record;       // of any type of this room: ops/plan/record.h
  std::string name;    // e.g. "blk.3.attn_q"
  int32_t layer = -1;  // -1: outside the layers

  // The record as one of type R: is it one; null where it is another; and where a bug alone could make it another.
  template <class R>
  bool is() const noexcept {
    return record.is<R>();
  }
  template <class R>
  const R* as() const noexcept {
    return record.as<R>();
  }
  template <class R>
  R* as() noexcept {
    return record.as<R>();
  }
  template <class R>
  const R& get() const {
    return record.get<R>();
  }
  template <class R>
  R& get() {
    return record.get<R>();
  }
};

struct Plan {
  std::vector<Value> values;
  std::vector<Weight> weights;
  std::vector<RopeSpec> ropes;
  std::vector<CacheLayer> cache_layers;
  std::vector<StateLayer> states;
  std::vector<Op> ops;
  ValueId logits = kNone;  // [n_outputs, vocab_size]; kNone: there is no head
  ValueId hidden =
      kNone;  // [n_outputs, d_model]: the rows that the head reads, of which embeddings are made; kNone: none are named
  bool causal = true;  // false: tokens see later ones, so that a sequence is run whole, in one run from position 0 on
  // Of a part of a split plan (plan_split.h): the value that no op of the part writes, and the one that the next part
  // is given.
  ValueId input = kNone, handed = kNone;
  int64_t vocab_size = 0;
  int64_t d_model = 0;
  int64_t n_ctx_train = 0;
  int64_t n_ctx_max = 0;  // positions that the model has at all; 0: no end

  ValueId output() const noexcept {
    return logits != kNone ? logits : hidden;
  }  // what a run gives for each of its outputs
  int64_t output_width() const noexcept { return values[static_cast<size_t>(output())].width; }
};

}  // namespace assay::ops
