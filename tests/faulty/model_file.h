// Small model files to put faults into: random weights of a natural size in several formats, grouped queries, heads
// that are not d_model / n_heads wide, scaled rotation, windows, a vocabulary and a chat template. Deterministic. Keys
// and tensors can be changed before the file is written, which is how a fault of a file is made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/gguf_writer.h"
#include "tensor/dtype.h"

namespace assay::faults {

enum class Scaling { none, llama3, yarn };
enum class Words { sentence_piece, byte_level };

struct ModelSpec {
  std::string architecture = "llama";  // or "gemma3"
  uint32_t n_layers = 2, d_model = 256, d_ff = 512, n_heads = 4, n_kv_heads = 2, head_dim = 128, window = 0,
           n_ctx = 512;
  float theta = 50000;
  Scaling scaling = Scaling::none;
  tensor::DType embed{}, q{}, k{}, v{}, o{}, gate{}, up{}, down{}, head{};  // F32 where nothing is said
  bool tied = false;
  bool biases = false;  // of attention's projections
  float qk_bias = 0;    // their mean for Q and K: scores far beyond what half precision holds
  float up_scale =
      1;  // activations in the middle of the feed-forward layer grow by this; its last matrix shrinks by it
  Words words = Words::sentence_piece;
  uint64_t seed = 1;
};

// The models that the rows use.
ModelSpec k_quants();  // Q4_K, Q5_K, Q6_K, Q2_K, llama3 scaling, a head of its own
ModelSpec
blocks_32();        // Q4_0, Q4_1, Q5_1, Q8_0, a window, YaRN, tied, biases, rows of a length that is no multiple of 128
ModelSpec gemma();  // floats, norms on heads, windows that alternate
ModelSpec large_scores();       // attention scores beyond the range of half precision
ModelSpec large_activations();  // activations whose sums are beyond it

class ModelFile {
 public:
  explicit ModelFile(const ModelSpec& spec);

  struct Key {
    std::string name;
    uint32_t type;
    test::Bytes payload;
  };
  struct Tensor {
    std::string name;
    tensor::DType dtype;
    std::vector<int64_t> shape;  // row-major
    test::Bytes data;
  };
  std::vector<Key> keys;
  std::vector<Tensor> tensors;

  // Adds a key or gives it another value.
  template <class T>
  void set(std::string_view name, const T& value);
  void drop_key(std::string_view name);
  Tensor& tensor(std::string_view name);
  void drop_tensor(std::string_view name);
  test::Bytes bytes() const;
  void write(const std::string& path) const;

 private:
  void add_words(Words words);
  void add_layer(const ModelSpec& spec, const std::string& layer);
  void add_matrix(const std::string& name, tensor::DType dtype, int64_t rows, int64_t cols, float rms);
  void add_vector(const std::string& name, int64_t n, float mean, float spread);

  uint64_t seed_;
};

template <class T>
void ModelFile::set(std::string_view name, const T& value) {
  test::Bytes payload;
  uint32_t type = 0;
  if constexpr (std::is_arithmetic_v<T>) {
    type = test::gguf_type<T>();
    test::append(payload, value);
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    type = test::kGgufString;
    test::append(payload, std::string_view(value));
  } else {
    type = test::kGgufArray;
    using Element = typename T::value_type;
    if constexpr (std::is_arithmetic_v<Element>) {
      test::append(payload, test::gguf_type<Element>());
    } else {
      test::append(payload, test::kGgufString);
    }
    test::append(payload, uint64_t{value.size()});
    for (const Element& element : value) test::append(payload, element);
  }
  drop_key(name);
  keys.push_back({std::string(name), type, std::move(payload)});
}

}  // namespace assay::faults
