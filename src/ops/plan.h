// The Plan: a model's forward pass as a flat list of op records, built once with the number of tokens left open. The CPU, the oracle, trace,
// verify and the memory planner all walk this list; nobody writes a second forward pass. Each op's formula, contract and scalar
// reference stand in ops/<op>.h.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tensor/view.h"

namespace assay::ops {

using ValueId = int32_t;   // index into Plan::values
using WeightId = int32_t;  // index into Plan::weights
using RopeId = int32_t;    // index into Plan::ropes
inline constexpr int32_t kNone = -1;

// A stream of activations: f32 [n_tokens, width]; [n_outputs, width] after SelectOutputs. Each value is written by exactly one op
// (static single assignment); executors decide which of them share memory.
struct Value {
  std::string name;  // e.g. "blk.3.attn_norm"
  int64_t width = 0;
  bool outputs_only = false;
};

// A tensor of the file; the view points into the file's map, which must outlive the Plan.
struct Weight {
  std::string name;  // e.g. "blk.3.attn_q.weight"
  tensor::TensorView view;
  int64_t stride = 0;  // of columns of a matrix (Linear::columns): from row to row of view.data, in bytes; 0: rows follow one another
};

// Rotation of pairs by position * inverse_frequency[i], i < dim / 2; cos and sin are made in double, multiplied by `magnitude`, rounded once to f32.
// interleaved: pair i is (2i, 2i + 1); else ("NeoX") it is (i, i + dim / 2). Elements from dim on pass through.
struct RopeSpec {
  int64_t dim = 0;
  bool interleaved = true;
  std::vector<double> inverse_frequency;  // dim / 2 values, scaling applied
  double magnitude = 1.0;                 // YaRN's attention factor
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

struct CacheLayer {  // what one layer keeps per position
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;  // 0: all positions are visible
};

enum class GateActivation { silu, gelu_tanh };

// Scales are doubles for the oracle's sake; f32 executors round them once, to float.
struct Embed { WeightId table; double scale; ValueId y; };             // y = decode(table[token]) * scale, rounded once
struct RmsNorm { ValueId x; WeightId w; float eps; int64_t d; ValueId y; };  // every run of d elements of a token on its own
// w [width(y), width(x)]; bias kNone or f32 [width(y)]. columns: of a shard, where some chunks of the contract meet just its own columns of x: all
// rows of the whole matrix, those columns alone. An executor may sum these instead, if the shards then add their sums by the contract's tree.
struct Linear { ValueId x; WeightId w; WeightId bias; ValueId y; WeightId columns = kNone; };
struct Rope { ValueId x; RopeId rope; int64_t n_heads, head_dim; ValueId y; };
struct KvStore { ValueId k, v; int32_t layer; };                       // appends to the cache, in the cache's type
struct Attention { ValueId q; int32_t layer; int64_t n_heads, n_kv_heads, head_dim; double scale; int64_t window; ValueId y; };
struct Add { ValueId a, b; ValueId y; };
struct Gate { ValueId gate, up; GateActivation activation; ValueId y; };  // y = activation(gate) * up
struct SelectOutputs { ValueId x; ValueId y; };                        // keeps the tokens whose logits are wanted
// Of a plan that is one of several shards (plan_shards.h): x holds columns `column` .. of y, the other shards have the others; y is all of them.
struct Gather { ValueId x; int64_t column; ValueId y; };

struct Op {
  std::variant<Embed, RmsNorm, Linear, Rope, KvStore, Attention, Add, Gate, SelectOutputs, Gather> record;
  std::string name;    // e.g. "blk.3.attn_q"
  int32_t layer = -1;  // -1: outside the layers
};

struct Plan {
  std::vector<Value> values;
  std::vector<Weight> weights;
  std::vector<RopeSpec> ropes;
  std::vector<CacheLayer> cache_layers;
  std::vector<Op> ops;
  ValueId logits = kNone;  // [n_outputs, vocab_size]
  // Of a part of a split plan (plan_split.h): the value that no op of the part writes, and the one that the next part is given.
  ValueId input = kNone, handed = kNone;
  int64_t vocab_size = 0;
  int64_t d_model = 0;
  int64_t n_ctx_train = 0;
};

}  // namespace assay::ops
