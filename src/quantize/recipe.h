// Which type each tensor of a model gets in a mix: names to kinds, kinds and places to types (mix_rules.cpp holds the
// table), shapes to what fits them. Pure: looks at names, shapes and a few facts of the model, reads no data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quantize/mixes.h"
#include "tensor/view.h"

namespace assay::quantizing {

// What a tensor is for, told by its name.
enum class Kind { other, output, embedding, qkv, kv_b, v, k, q, attn_output, up, gate, down };
Kind kind_of(std::string_view name) noexcept;

// The number N of a name with "blk.N." in it; nullopt: outside the blocks.
std::optional<int64_t> block_of(std::string_view name) noexcept;

// The order in which tensors are decided and written: outside the blocks first, then block by block, by name in each.
bool goes_before(std::string_view a, std::string_view b) noexcept;

struct ModelFacts {
  std::string architecture;
  int64_t n_layers = 0;
  int64_t n_heads = 0, n_kv_heads = 0;  // of block 0
  int64_t n_experts = 0;
};

struct RecipeTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::F32;
  tensor::Shape shape;
};

struct RecipeOptions {
  const Mix* mix = nullptr;
  bool has_matrix = false;
  bool pure = false;
  bool leave_output_tensor = false;
  std::optional<tensor::DType> output_tensor_type, token_embedding_type;
  // The type that the user's own rules give a tensor, by name; empty: no rules.
  std::function<std::optional<tensor::DType>(std::string_view)> chosen = {};
};

struct Choice {
  tensor::DType dtype = tensor::DType::F32;
  std::optional<tensor::DType> wanted = {};  // where dtype is a fallback: the type whose block does not fit the columns
  bool quantizable = false;                  // false: kept as it is
  bool needs_matrix = false;                 // the format is of no use without one
};

// False for what no mix touches: vectors, norms, routers, position tables and the like.
bool is_quantizable(const RecipeTensor& tensor, const ModelFacts& facts, bool leave_output_tensor) noexcept;

// One choice a tensor; tensors are in the order of goes_before(). Error(bad_request) for a type whose block does not
// fit and that has no fallback, Error(bad_file) for a block number outside the model.
std::vector<Choice> choose_types(std::span<const RecipeTensor> tensors, const ModelFacts& facts,
                                 const RecipeOptions& options);

}  // namespace assay::quantizing
