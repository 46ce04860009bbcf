// A conversion as it is drawn up: the new file's keys, and its tensors by where their rows come from. Nothing is read of the weights here.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/config.h"
#include "convert/folder.h"
#include "gguf/head.h"
#include "tensor/view.h"

namespace assay::converting {

// Consecutive rows of a tensor of the folder.
struct Slice {
  const StoredTensor* tensor = nullptr;
  int64_t first_row = 0, n_rows = 0;
};

struct Output {
  std::string name;
  tensor::Shape shape;
  bool is_f32 = false;             // whatever type was asked for: norms, biases, routers
  int64_t cols = 1, rows = 1;      // as it is read; of a permuted bias one column, whatever its shape
  std::vector<Slice> slices;       // in the order of its rows
  int64_t rope_heads = 0;          // above 0: in each of so many heads the rows of its two halves take turns
  bool plus_one = false;
  std::vector<float> values;       // made here, where there are no slices
};

// What happens to a tensor on its way.
enum class As {
  plain,
  rope_q,   // rows re-ordered in each of the query heads: the checkpoint turns (i, i + n/2), the file's architecture (2i, 2i + 1)
  rope_k,   // the same in each of the key heads
  plus_one, // a norm that multiplies by 1 + weight
  gate,     // the first half of the rows, of each expert in three dimensions
  up,       // the second half
  tied,     // the head: absent where the embedding is one
  vocabulary,  // rows beyond the tokenizer's tokens are left out
};

struct Rule {
  std::string_view from, to;  // {} stands for the layer, {x} for the expert
  As as = As::plain;
  bool optional = false;      // in all layers or in none
};

class Draft {
 public:
  Draft(const Folder& folder, std::string architecture, std::string_view defaults, bool text_only);

  const Folder& folder;
  Config config;
  gguf::Head head;
  std::vector<Output> outputs;
  std::vector<std::string> notes;  // what the user should know
  int64_t n_layers = 0, n_heads = 0, n_kv_heads = 0, n_experts = 0;
  bool is_tied = false;

  const std::string& architecture() const noexcept { return architecture_; }
  // Under "ARCHITECTURE.NAME"; counts are u32, numbers f32, as the other converters write them.
  void count(std::string_view name, int64_t value);
  void number(std::string_view name, double value);
  void flag(std::string_view name, bool value);
  void text(std::string_view name, std::string_view value);
  void flags(std::string_view name, const std::vector<bool>& values);

  // Takes the tensors of the rules: those without {} first, then layer by layer from `first` to `last`. Error(bad_file) for one that is missing.
  void take(std::span<const Rule> rules) { take(rules, 0, n_layers); }
  void take(std::span<const Rule> rules, int64_t first, int64_t last);
  void make(std::string name, std::vector<float> values);  // a tensor of one dimension
  // Tensors whose names match: known to be of no use. A '*' stands for any characters.
  void leave(std::string_view pattern);
  void limit_vocabulary(int64_t n_tokens);  // for As::vocabulary
  void check_all_taken() const;  // Error(unsupported) naming the first tensor that no rule takes

 private:
  const StoredTensor* take_one(const std::string& name);
  bool take_layer(const Rule& rule, int64_t layer);
  void add(const Rule& rule, const std::string& to, const std::vector<const StoredTensor*>& sources);
  void shape_rows(Output& output, const Rule& rule, const std::vector<const StoredTensor*>& sources) const;

  std::string architecture_;
  std::map<std::string, const StoredTensor*, std::less<>> by_name_;  // names as a text model alone has them
  std::map<std::string, bool, std::less<>> taken_;
};

// The name less what wraps a text model in one that also sees or hears.
std::string text_model_name(std::string_view name);
bool matches(std::string_view pattern, std::string_view name);

}  // namespace assay::converting
