// See model_file.h.
#include "faulty/model_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "num/f16.h"
#include "quant/format.h"
#include "support/random_weights.h"
#include "support/small_vocabularies.h"

namespace assay::faults {
namespace {

using tensor::DType;

constexpr const char* kTemplate =
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'system' -%}<|system|>{{ '\\n' + message['content'] | trim }}<|end|>{{ '\\n' }}"
    "{%- elif message['role'] == 'user' -%}<|user|>{{ '\\n' + message['content'] | trim }}<|end|>{{ '\\n' }}"
    "{%- else -%}<|assistant|>{{ '\\n' + message['content'] | trim }}<|end|>{{ '\\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{{ '\\n' }}{%- endif -%}";

// The scale that makes the format's random integers weights of root mean square 1, and the minimum that centres them,
// in scales.
struct Natural {
  double d = 1, min = 0;
};
Natural natural(DType dtype) {
  switch (dtype) {
    case DType::Q4_0: return {1 / 4.7, 0};
    case DType::Q4_1: return {1 / 4.6, -7.5};
    case DType::Q5_0: return {1 / 9.3, 0};
    case DType::Q5_1: return {1 / 9.2, -15.5};
    case DType::Q8_0: return {1 / 74.0, 0};
    case DType::Q2_K: return {1 / 17.0, 1.5};
    case DType::Q3_K: return {1 / 43.0, 0};
    case DType::Q4_K: return {1 / 330.0, 7.5};
    case DType::Q5_K: return {1 / 670.0, 15.5};
    case DType::Q6_K: return {1 / 1370.0, 0};
    default: return {};
  }
}

test::Bytes random_matrix(DType dtype, int64_t rows, int64_t cols, float rms, uint64_t seed) {
  test::Random random(seed);
  const tensor::DTypeTraits& t = tensor::traits(dtype);
  test::Bytes bytes = test::random_weights(*quant::find_format(dtype), rows * cols, seed);
  const test::ScaleOffsets offsets = test::scale_offsets(dtype);
  const Natural n = natural(dtype);
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(t.block_bytes)) {
    std::byte* block = bytes.data() + at;
    if (t.block_elements == 1) {
      const float x = rms * random.normal();
      const uint16_t half = dtype == DType::F16 ? num::float_to_half(x) : num::float_to_bf16(x);
      std::memcpy(block, dtype == DType::F32 ? static_cast<const void*>(&x) : &half,
                  static_cast<size_t>(t.block_bytes));
      continue;
    }
    const double d = n.d * rms * (1 + 0.2 * random.uniform());
    const uint16_t scale = num::float_to_half(static_cast<float>(d)),
                   min = num::float_to_half(static_cast<float>(d * n.min));
    std::memcpy(block + offsets.d, &scale, 2);
    if (offsets.m >= 0) std::memcpy(block + offsets.m, &min, 2);
  }
  return bytes;
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;  // as GGUF numbers them
  std::vector<float> scores;
  std::vector<std::string> merges;
  void add(std::string token, int32_t kind, float score = 0) {
    tokens.push_back(std::move(token));
    kinds.push_back(kind);
    scores.push_back(score);
  }
};

Vocabulary sentence_piece() {
  Vocabulary v;
  v.add("<unk>", 2);
  for (const char* control : {"<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"}) v.add(control, 3);
  for (const std::string& hex : test::byte_spellings().hex) v.add(hex, 6);
  float score = -1;
  for (const char* piece : {"▁t", "he", "▁a", "in", "er", "▁the", "an",   "re", "on", "▁an", "ing", "or", "▁s",
                            "▁w", "at", "en", "ou", "▁o", "ve",   "▁and", "33", "77", "is",  "it",  "ab", "▁ab"}) {
    v.add(piece, 1, score--);
  }
  for (const char* letter : {"▁", "e", "t", "a", "o", "i", "n", "s", "r", "h", "l", "d", "u", "c", "m", "f", "w", "g",
                             "y", "p", "b", "v", "k", ".", ",", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}) {
    v.add(letter, 1, score--);
  }
  return v;
}

Vocabulary byte_level() {
  Vocabulary v;
  for (const std::string& letter : test::byte_spellings().letters) v.add(letter, 1);
  const auto merge = [&](const std::string& left, const std::string& right) {
    v.merges.push_back(left + " " + right);
    v.add(left + right, 1);
  };
  const std::string blank = "\xC4\xA0";  // the letter of a blank
  merge("h", "e");
  merge("i", "n");
  merge(blank, "t");
  merge("r", "e");
  merge("a", "n");
  merge(blank + "t", "he");
  merge("in", "g");
  merge("3", "3");
  merge("33", "3");
  merge("7", "7");
  merge("77", "7");
  merge("33", "33");
  merge(blank, "a");
  merge("l", "l");
  merge("o", "n");
  merge("'", "t");
  for (const char* control :
       {"<|begin_of_text|>", "<|end_of_text|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"}) {
    v.add(control, 3);
  }
  return v;
}

uint32_t id_of(const Vocabulary& v, std::string_view token) {
  return static_cast<uint32_t>(std::find(v.tokens.begin(), v.tokens.end(), token) - v.tokens.begin());
}

}  // namespace

ModelSpec k_quants() {
  ModelSpec spec;
  spec.scaling = Scaling::llama3;
  spec.embed = spec.v = spec.down = spec.head = DType::Q6_K;
  spec.q = spec.k = spec.gate = DType::Q4_K;
  spec.o = DType::Q5_K;
  spec.up = DType::Q2_K;
  return spec;
}

ModelSpec blocks_32() {
  ModelSpec spec;
  spec.d_model = 128;
  spec.d_ff = 352;
  spec.head_dim = 48;
  spec.window = 12;
  spec.scaling = Scaling::yarn;
  spec.embed = spec.k = spec.up = spec.head = DType::Q8_0;
  spec.q = spec.gate = DType::Q4_0;
  spec.v = spec.down = DType::Q4_1;
  spec.o = DType::Q5_1;
  spec.tied = spec.biases = true;
  spec.words = Words::byte_level;
  spec.seed = 2;
  return spec;
}

ModelSpec gemma() {
  ModelSpec spec;
  spec.architecture = "gemma3";
  spec.n_layers = 3;
  spec.d_model = 96;
  spec.d_ff = 160;
  spec.head_dim = 32;
  spec.window = 8;
  spec.theta = 1e6f;
  spec.embed = spec.q = spec.k = DType::F16;
  spec.gate = spec.up = DType::BF16;
  spec.tied = true;
  spec.seed = 3;
  return spec;
}

ModelSpec large_scores() {
  ModelSpec spec;
  spec.d_model = 64;
  spec.d_ff = 96;
  spec.head_dim = 64;
  spec.biases = true;
  spec.qk_bias = 60;
  spec.seed = 4;
  return spec;
}

ModelSpec large_activations() {
  ModelSpec spec = blocks_32();
  spec.up_scale = 3e5f;
  spec.up = DType::F32;
  spec.seed = 5;
  return spec;
}

ModelFile::ModelFile(const ModelSpec& spec) : seed_(spec.seed * 1000) {
  const std::string prefix = spec.architecture + ".";
  set("general.architecture", spec.architecture);
  set("general.name", std::string("a small random model"));
  set(prefix + "block_count", spec.n_layers);
  set(prefix + "context_length", spec.n_ctx);
  set(prefix + "embedding_length", spec.d_model);
  set(prefix + "feed_forward_length", spec.d_ff);
  set(prefix + "attention.head_count", spec.n_heads);
  set(prefix + "attention.head_count_kv", spec.n_kv_heads);
  set(prefix + "attention.key_length", spec.head_dim);
  set(prefix + "attention.value_length", spec.head_dim);
  set(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  set(prefix + "rope.dimension_count", spec.head_dim);
  set(prefix + "rope.freq_base", spec.theta);
  if (spec.window > 0) set(prefix + "attention.sliding_window", spec.window);
  if (spec.architecture == "gemma3") set(prefix + "attention.sliding_window_pattern", uint32_t{2});
  if (spec.scaling == Scaling::yarn) {
    set(prefix + "rope.scaling.type", std::string("yarn"));
    set(prefix + "rope.scaling.factor", 4.0f);
    set(prefix + "rope.scaling.original_context_length", uint32_t{128});
  }
  add_words(spec.words);
  const Vocabulary words = spec.words == Words::sentence_piece ? sentence_piece() : byte_level();
  const auto vocab_size = static_cast<int64_t>(words.tokens.size());
  set(prefix + "vocab_size", static_cast<uint32_t>(vocab_size));
  add_matrix("token_embd", spec.embed, vocab_size, spec.d_model, 0.05f);
  if (spec.scaling == Scaling::llama3) {
    std::vector<float> factors;
    for (uint32_t i = 0; i < spec.head_dim / 2; ++i) {
      factors.push_back(
          std::clamp(1 + 7 * (static_cast<float>(i) / static_cast<float>(spec.head_dim / 2) - 0.5f) * 4, 1.0f, 8.0f));
    }
    tensors.push_back({"rope_freqs.weight", DType::F32, {spec.head_dim / 2}, {}});
    test::append(tensors.back().data, factors.data(), factors.size() * sizeof(float));
  }
  for (uint32_t layer = 0; layer < spec.n_layers; ++layer) add_layer(spec, "blk." + std::to_string(layer) + ".");
  add_vector("output_norm.weight", spec.d_model, 1.0f, 0.1f);
  if (!spec.tied)
    add_matrix("output", spec.head, vocab_size, spec.d_model, 3 / std::sqrt(static_cast<float>(spec.d_model)));
}

void ModelFile::add_words(Words words) {
  const bool pieces = words == Words::sentence_piece;
  const Vocabulary v = pieces ? sentence_piece() : byte_level();
  set("tokenizer.ggml.model", std::string(pieces ? "llama" : "gpt2"));
  set("tokenizer.ggml.tokens", v.tokens);
  set("tokenizer.ggml.token_type", v.kinds);
  if (pieces) {
    set("tokenizer.ggml.scores", v.scores);
  } else {
    set("tokenizer.ggml.pre", std::string("llama-bpe"));
    set("tokenizer.ggml.merges", v.merges);
  }
  set("tokenizer.ggml.bos_token_id", id_of(v, pieces ? "<s>" : "<|begin_of_text|>"));
  set("tokenizer.ggml.eos_token_id", id_of(v, pieces ? "</s>" : "<|end_of_text|>"));
  set("tokenizer.ggml.eot_token_id", id_of(v, "<|end|>"));
  set("tokenizer.ggml.add_bos_token", true);
  set("tokenizer.chat_template", std::string(kTemplate));
}

void ModelFile::add_layer(const ModelSpec& spec, const std::string& layer) {
  const int64_t q = int64_t{spec.n_heads} * spec.head_dim, kv = int64_t{spec.n_kv_heads} * spec.head_dim,
                d = spec.d_model;
  const auto natural_rms = [](int64_t inputs) { return 1 / std::sqrt(static_cast<float>(inputs)); };
  const bool gemma_norms = spec.architecture == "gemma3";
  add_vector(layer + "attn_norm.weight", d, 1.0f, 0.1f);
  add_matrix(layer + "attn_q", spec.q, q, d, natural_rms(d));
  add_matrix(layer + "attn_k", spec.k, kv, d, natural_rms(d));
  add_matrix(layer + "attn_v", spec.v, kv, d, natural_rms(d));
  add_matrix(layer + "attn_output", spec.o, d, q, natural_rms(q));
  if (spec.biases) {
    add_vector(layer + "attn_q.bias", q, spec.qk_bias, 0.5f);
    add_vector(layer + "attn_k.bias", kv, spec.qk_bias, 0.5f);
    add_vector(layer + "attn_v.bias", kv, 0.0f, 0.5f);
  }
  if (gemma_norms) {
    add_vector(layer + "attn_q_norm.weight", spec.head_dim, 1.0f, 0.1f);
    add_vector(layer + "attn_k_norm.weight", spec.head_dim, 1.0f, 0.1f);
    add_vector(layer + "post_attention_norm.weight", d, 1.0f, 0.1f);
    add_vector(layer + "post_ffw_norm.weight", d, 1.0f, 0.1f);
  }
  add_vector(layer + "ffn_norm.weight", d, 1.0f, 0.1f);
  add_matrix(layer + "ffn_gate", spec.gate, spec.d_ff, d, natural_rms(d));
  add_matrix(layer + "ffn_up", spec.up, spec.d_ff, d, spec.up_scale * natural_rms(d));
  add_matrix(layer + "ffn_down", spec.down, d, spec.d_ff, natural_rms(spec.d_ff) / std::sqrt(spec.up_scale));
}

void ModelFile::add_matrix(const std::string& name, DType dtype, int64_t rows, int64_t cols, float rms) {
  tensors.push_back({name + ".weight", dtype, {rows, cols}, random_matrix(dtype, rows, cols, rms, ++seed_)});
}

void ModelFile::add_vector(const std::string& name, int64_t n, float mean, float spread) {
  test::Random random(++seed_);
  tensors.push_back({name, DType::F32, {n}, {}});
  for (int64_t i = 0; i < n; ++i) test::append(tensors.back().data, mean + spread * random.uniform());
}

void ModelFile::drop_key(std::string_view name) {
  std::erase_if(keys, [&](const Key& key) { return key.name == name; });
}

ModelFile::Tensor& ModelFile::tensor(std::string_view name) {
  for (Tensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("the model has no tensor " + std::string(name));
}

void ModelFile::drop_tensor(std::string_view name) {
  std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
}

test::Bytes ModelFile::bytes() const {
  test::GgufWriter writer;
  for (const Key& key : keys) writer.raw_entry(key.name, key.type, key.payload);
  for (const Tensor& tensor : tensors) writer.tensor(tensor.name, tensor.dtype, tensor.shape, tensor.data);
  return writer.bytes();
}

void ModelFile::write(const std::string& path) const {
  const test::Bytes all = bytes();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
}

}  // namespace assay::faults
