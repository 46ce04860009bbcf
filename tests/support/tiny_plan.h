// For tests: a small decoder as a Plan, written by hand over random weights that it owns. Every op occurs.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear.h"
#include "ops/plan/plan.h"
#include "ops/rows/activation.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/select_outputs.h"
#include "support/random_weights.h"

namespace assay::test {

struct TinyShape {
  int64_t vocab_size = 64, d_model = 64, d_ff = 96, n_layers = 2, n_heads = 4, n_kv_heads = 2, head_dim = 32,
          window = 0;
  tensor::DType dtype = tensor::DType::Q4_0;
  bool gemma = false;                 // norms on heads and after blocks, GELU, halves in RoPE, an embedding scale
  bool tied = false, biases = false;  // biases: on every matrix of a layer; else on q alone, and in gemma on none
  float eps = 1e-5f;
  float attn_norm = 1.0f;  // the middle of its weights: small ones keep scores in the range where a softmax is soft
  int64_t rope_dim = 0;    // 0: head_dim
  double rope_theta = 1e4, rope_factor = 1, rope_magnitude = 1;  // factor: slows the lower half of the frequencies
  uint64_t seed = 0;
};

class TinyPlan {
 public:
  explicit TinyPlan(const TinyShape& shape) : s_(shape), seed_(shape.seed * 1000) {
    ops::RopeSpec rope;
    rope.dim = shape.rope_dim == 0 ? shape.head_dim : shape.rope_dim;
    rope.interleaved = !shape.gemma;
    rope.magnitude = shape.rope_magnitude;
    for (int64_t i = 0; i < rope.dim / 2; ++i) {
      const double frequency = std::pow(s_.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.dim));
      rope.inverse_frequency.push_back(4 * i < rope.dim ? frequency : frequency / s_.rope_factor);
    }
    plan.ropes.push_back(rope);
    ops::ValueId x = value("embed", s_.d_model);
    const ops::WeightId table = weight(s_.vocab_size, s_.d_model);
    add("embed", ops::Embed{table, s_.gemma ? 16.0 : 1.0, x});
    for (int32_t layer = 0; layer < s_.n_layers; ++layer) x = decoder_layer(layer, x);
    layer_ = -1;
    const ops::ValueId normed = norm("output_norm", x, s_.d_model);
    plan.logits = value("logits", s_.vocab_size);
    add("output", ops::Linear{normed, s_.tied ? table : weight(s_.vocab_size, s_.d_model), ops::kNone, plan.logits});
    plan.vocab_size = s_.vocab_size;
    plan.d_model = s_.d_model;
    plan.n_ctx_train = 4096;
  }
  TinyPlan(const TinyPlan&) = delete;
  TinyPlan& operator=(const TinyPlan&) = delete;

  ops::Plan plan;

 private:
  ops::ValueId value(const std::string& name, int64_t width) {
    plan.values.push_back({name, width, domain_});
    return static_cast<ops::ValueId>(plan.values.size() - 1);
  }
  template <class Record>
  void add(const std::string& name, const Record& record) {
    plan.ops.push_back({record, name, layer_});
  }

  ops::WeightId enter(tensor::DType dtype, int64_t rows, int64_t cols, std::vector<std::byte> bytes) {
    memory_.push_back(std::make_unique<std::vector<std::byte>>(std::move(bytes)));
    tensor::TensorView view;
    view.dtype = dtype;
    view.shape.rank = 2;
    view.shape.dims = {rows, cols, 1, 1};
    view.data = *memory_.back();
    std::string name(1, 'w');
    name += std::to_string(plan.weights.size());
    plan.weights.push_back({name, view});
    return static_cast<ops::WeightId>(plan.weights.size() - 1);
  }
  ops::WeightId weight(int64_t rows, int64_t cols) {
    const quant::Format& format = *quant::find_format(s_.dtype);
    return enter(s_.dtype, rows, cols, random_weights(format, rows * cols, ++seed_));
  }
  ops::WeightId vector_weight(int64_t n, float base, float spread) {  // norms around 1, biases around 0
    Random random(++seed_);
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(base + spread * random.normal());
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return enter(tensor::DType::F32, 1, n, std::move(bytes));
  }

  ops::ValueId norm(const std::string& name, ops::ValueId x, int64_t d, float middle = 1.0f) {
    const ops::ValueId y = value(name, plan.values[static_cast<size_t>(x)].width);
    add(name, ops::RmsNorm{x, vector_weight(d, middle, 0.1f * middle), s_.eps, d, y});
    return y;
  }
  ops::ValueId linear(const std::string& name, ops::ValueId x, int64_t width, bool bias = false) {
    const ops::ValueId y = value(name, width);
    const ops::WeightId w = weight(width, plan.values[static_cast<size_t>(x)].width);
    add(name, ops::Linear{x, w, bias || s_.biases ? vector_weight(width, 0.0f, 0.5f) : ops::kNone, y});
    return y;
  }
  ops::ValueId rope(const std::string& name, ops::ValueId x, int64_t n_heads) {
    const ops::ValueId y = value(name, plan.values[static_cast<size_t>(x)].width);
    add(name, ops::Rope{x, 0, n_heads, s_.head_dim, y});
    return y;
  }
  ops::ValueId select(const std::string& name, ops::ValueId x) {
    domain_ = ops::RowDomain::outputs;
    const ops::ValueId y = value(name, plan.values[static_cast<size_t>(x)].width);
    add(name, ops::SelectOutputs{x, y});
    return y;
  }
  ops::ValueId sum(const std::string& name, ops::ValueId a, ops::ValueId b) {
    const ops::ValueId y = value(name, plan.values[static_cast<size_t>(a)].width);
    add(name, ops::Add{a, b, y});
    return y;
  }

  ops::ValueId decoder_layer(int32_t layer, ops::ValueId x) {
    layer_ = layer;
    const int64_t window = layer % 2 == 0 ? s_.window : 0;
    plan.cache_layers.push_back({s_.n_kv_heads, s_.head_dim, window});
    const ops::ValueId a = norm("attn_norm", x, s_.d_model, s_.attn_norm);
    ops::ValueId q = linear("attn_q", a, s_.n_heads * s_.head_dim, !s_.gemma);
    if (s_.gemma) q = norm("attn_q_norm", q, s_.head_dim);
    q = rope("attn_q_rope", q, s_.n_heads);
    ops::ValueId k = linear("attn_k", a, s_.n_kv_heads * s_.head_dim);
    if (s_.gemma) k = norm("attn_k_norm", k, s_.head_dim);
    k = rope("attn_k_rope", k, s_.n_kv_heads);
    const ops::ValueId v = linear("attn_v", a, s_.n_kv_heads * s_.head_dim);
    add("kv_store", ops::KvStore{k, v, layer});
    ops::ValueId o = value("attention", s_.n_heads * s_.head_dim);
    add("attention", ops::Attention{q, layer, s_.n_heads, s_.n_kv_heads, s_.head_dim,
                                    1.0 / std::sqrt(static_cast<double>(s_.head_dim)), window, o});
    if (layer + 1 == s_.n_layers) {
      o = select("attention_selected", o);
      x = select("residual_selected", x);
    }
    o = linear("attn_output", o, s_.d_model);
    if (s_.gemma) o = norm("post_attention_norm", o, s_.d_model);
    x = sum("attn_residual", x, o);
    const ops::ValueId f = norm("ffn_norm", x, s_.d_model);
    const ops::ValueId gate = linear("ffn_gate", f, s_.d_ff), up = linear("ffn_up", f, s_.d_ff);
    const ops::ValueId act = value("ffn_act", s_.d_ff);
    add("ffn_act",
        ops::Gate{gate, up, s_.gemma ? ops::ActivationFunction::gelu_tanh : ops::ActivationFunction::silu, act});
    ops::ValueId down = linear("ffn_down", act, s_.d_model);
    if (s_.gemma) down = norm("post_ffw_norm", down, s_.d_model);
    return sum("residual", x, down);
  }

  TinyShape s_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;
  uint64_t seed_;
  int32_t layer_ = -1;
  ops::RowDomain domain_ = ops::RowDomain::tokens;
};

}  // namespace assay::test
