// A llama model of a few layers with random weights in any format, as the bytes of a GGUF file, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "quant/format.h"
#include "support/gguf_writer.h"
#include "support/random_weights.h"

namespace assay::test {

struct TinyLlama {
  tensor::DType dtype = tensor::DType::F32;  // of every matrix
  uint32_t n_layers = 2;
  uint32_t d_model = 256;
  uint32_t d_ff = 512;
  uint32_t n_heads = 4;
  uint32_t n_kv_heads = 2;
  uint32_t head_dim = 64;
  uint32_t vocab_size = 96;
  uint32_t n_ctx_train = 512;
  bool tied = false;
  bool biases = false;
  std::vector<std::string> without;  // keys (less "llama.") and tensors that are left out
  uint64_t seed = 1;
};

class TinyLlamaWriter {
 public:
  explicit TinyLlamaWriter(const TinyLlama& spec) : spec_(spec), seed_(spec.seed * 1000) {
    file_.set("general.architecture", "llama");
    key("block_count", spec.n_layers);
    key("context_length", spec.n_ctx_train);
    key("embedding_length", spec.d_model);
    key("feed_forward_length", spec.d_ff);
    key("attention.head_count", spec.n_heads);
    key("attention.head_count_kv", spec.n_kv_heads);
    key("attention.key_length", spec.head_dim);
    key("attention.value_length", spec.head_dim);
    key("rope.dimension_count", spec.head_dim);
    key("rope.freq_base", 10000.0f);
    key("attention.layer_norm_rms_epsilon", 1e-5f);
    matrix("token_embd", spec.vocab_size, spec.d_model, false);
    for (uint32_t layer = 0; layer < spec.n_layers; ++layer) add_layer("blk." + std::to_string(layer) + ".");
    vector("output_norm.weight", spec.d_model, 1.0f, 0.1f);
    if (!spec.tied) matrix("output", spec.vocab_size, spec.d_model, false);
  }
  GgufWriter& file() { return file_; }

 private:
  bool has(std::string_view name) const {
    return std::find(spec_.without.begin(), spec_.without.end(), name) == spec_.without.end();
  }

  template <class T>
  void key(const std::string& name, T value) {
    if (has(name)) file_.set("llama." + name, value);
  }

  void add_layer(const std::string& layer) {
    const int64_t q = int64_t{spec_.n_heads} * spec_.head_dim, kv = int64_t{spec_.n_kv_heads} * spec_.head_dim;
    // Small norms keep scores in the range where a softmax is soft, whatever the scale of the format's random weights.
    vector(layer + "attn_norm.weight", spec_.d_model, 0.05f, 0.02f);
    matrix(layer + "attn_q", q, spec_.d_model, spec_.biases);
    matrix(layer + "attn_k", kv, spec_.d_model, spec_.biases);
    matrix(layer + "attn_v", kv, spec_.d_model, spec_.biases);
    matrix(layer + "attn_output", spec_.d_model, q, spec_.biases);
    vector(layer + "ffn_norm.weight", spec_.d_model, 0.1f, 0.05f);
    matrix(layer + "ffn_gate", spec_.d_ff, spec_.d_model, spec_.biases);
    matrix(layer + "ffn_up", spec_.d_ff, spec_.d_model, spec_.biases);
    matrix(layer + "ffn_down", spec_.d_model, spec_.d_ff, spec_.biases);
  }

  void matrix(const std::string& name, int64_t rows, int64_t cols, bool bias) {
    if (has(name + ".weight")) {
      file_.tensor(name + ".weight", spec_.dtype, {rows, cols},
                   random_weights(*quant::find_format(spec_.dtype), rows * cols, ++seed_));
    }
    if (bias) vector(name + ".bias", rows, 0.0f, 0.5f);
  }

  void vector(const std::string& name, int64_t n, float mean, float spread) {
    if (!has(name)) return;
    Random random(++seed_);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = mean + spread * random.uniform();
    file_.tensor(name, {n}, values);
  }

  TinyLlama spec_;
  uint64_t seed_;
  GgufWriter file_;
};

}  // namespace assay::test
