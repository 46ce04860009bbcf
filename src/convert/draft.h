// A conversion as it is drawn up: the new file's keys, and its tensors by where their rows come from. Nothing is read
// of the weights here.
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

// Rows of the new tensor by where they stand in one of the folder's: its rows first, first + step, ...; or, where
// from_columns is set, columns of the block of rows that begins at block_row, which is a transposition. All in rows of
// the new tensor's width; of a permuted vector that width is 1.
struct Slice {
  const StoredTensor* tensor = nullptr;
  int64_t first = 0, n_rows = 0;
  int64_t step = 1;
  bool from_columns = false;
  int64_t block_row = 0;
};

// Columns by head: those of one group stand together in the folder, and in the file the first heads of all groups come
// first, then the second ones.
struct HeadTurns {
  int64_t n_groups = 0, n_each = 1, width = 0;  // 0 groups: they stay as they are
};

// What the rows up to `end` are multiplied by, one after the other.
struct Factors {
  int64_t end = 0;
  std::vector<float> values;
};

struct Output {
  std::string name;
  tensor::Shape shape;
  bool is_f32 = false;         // whatever type was asked for: norms, biases, routers
  int64_t cols = 1, rows = 1;  // as it is read; of a permuted vector one column, whatever its shape
  std::vector<Slice> slices;   // in the order of its rows
  int64_t rope_heads = 0;      // above 0: in each of so many heads the rows of its two halves take turns
  bool plus_one = false;
  bool negative_exp = false;  // -exp(x)
  HeadTurns columns;
  std::vector<Factors> factors;          // of rows, in order; empty: none
  const StoredTensor* scales = nullptr;  // the slices are of MXFP4's packed nibbles, and these their scales: kept as
                                         // they are, whatever type was asked for
  std::vector<float> values;             // made here, where there are no slices
};

// What happens to a tensor on its way.
enum class As {
  plain,
  rope_q,    // rows re-ordered in each of the query heads: the checkpoint turns (i, i + n/2), the file's architecture
             // (2i, 2i + 1)
  rope_k,    // the same in each of the key heads
  plus_one,  // a norm that multiplies by 1 + weight
  gate,      // the first half of the rows, of each expert in three dimensions
  up,        // the second half
  turned,    // rows and columns change places, of each expert in three dimensions
  turned_gate,  // the same with the first half of the columns
  turned_up,    // with the second half
  turned_even,  // with columns 0, 2, 4, ...
  turned_odd,   // with columns 1, 3, 5, ...
  even,         // elements 0, 2, 4, ... of each row
  odd,
  heads_apart,   // a head's queries, keys and values stand together; in the file all queries come first, then all keys,
                 // all values
  groups_apart,  // the same, where the queries of a group share one key and one value
  tied,          // the head: absent where the embedding is one
  filters,       // of a convolution, one a channel: the dimension of 1 between is taken out
  negative_exp,  // -exp(x): what decays a state
  negative_exp_column,  // the same, a vector as one of columns of 1
  column,               // a vector as one of columns of 1
  state_groups,         // a vector as rows, one for each group of a state's heads
  vocabulary,           // rows beyond the tokenizer's tokens are left out
};

struct Rule {
  std::string_view from, to;  // {} stands for the layer, {x} for the expert
  As as = As::plain;
  bool optional = false;  // in all layers or in none
};

class Draft {
 public:
  // How the folder's names differ from those of the rules: a prefix that is taken off, a "model." that is missing.
  struct Names {
    std::string_view prefix = {};
    bool bare = false;
  };
  Draft(const Folder& folder, std::string architecture, std::string_view defaults, bool text_only, const Names& names);

  const Folder& folder;
  Config config;
  gguf::Head head;
  std::vector<Output> outputs;
  std::vector<std::string> notes;  // what the user should know
  int64_t n_layers = 0, n_heads = 0, n_kv_heads = 0, n_experts = 0, n_state_groups = 0;
  bool is_tied = false;

  const std::string& architecture() const noexcept { return architecture_; }
  void set_architecture(std::string name);  // before any key: where a class's models go by several
  // Under "ARCHITECTURE.NAME"; counts are u32, numbers f32, as the other converters write them.
  void count(std::string_view name, int64_t value);
  void number(std::string_view name, double value);
  void flag(std::string_view name, bool value);
  void text(std::string_view name, std::string_view value);
  void flags(std::string_view name, const std::vector<bool>& values);
  void counts(std::string_view name, const std::vector<int64_t>& values);  // i32, one a layer
  void set_plain(std::string_view key, const std::vector<float>& values);  // a key without the architecture before it

  // Takes the tensors of the rules: those without {} first, then layer by layer from `first` to `last`. Error(bad_file)
  // for one that is missing.
  void take(std::span<const Rule> rules) { take(rules, 0, n_layers); }
  void take(std::span<const Rule> rules, int64_t first, int64_t last);
  void take(std::span<const Rule> rules, const std::vector<bool>& layers);  // those that are set
  bool has(const std::string& name) const { return by_name_.contains(name); }
  // A tensor that no rule describes: its name in the folder, then what becomes of it. Error(bad_file) where there is
  // none.
  const StoredTensor& need(const std::string& name, bool packed = false);
  Output& add(std::string name, std::vector<int64_t> shape, std::vector<Slice> slices);
  std::vector<float> values_of(const std::string& name);  // of a small one, whose numbers become keys
  // The tensors of layers from `first` on are left: heads that predict further tokens.
  void leave_layers(int64_t first, std::string_view what);
  void make(std::string name, std::vector<float> values);  // a tensor of one dimension
  void fill_up(std::string_view name, int64_t n_rows);     // rows of zeros behind those of the folder
  // Tensors whose names match: known to be of no use. A '*' stands for any characters.
  void leave(std::string_view pattern);
  void drop_first_rows(std::string_view name, int64_t n_rows);  // Error(bad_file) where it has no others
  void limit_vocabulary(int64_t n_tokens);                      // for As::vocabulary
  void check_all_taken() const;  // Error(unsupported) naming the first tensor that no rule takes

 private:
  void read_names(const Names& names);
  const StoredTensor* take_one(const std::string& name, bool packed = false);
  void take_once(std::span<const Rule> rules);
  void note_another_head(const StoredTensor& own);  // of a tied model
  bool take_layer(const Rule& rule, int64_t layer);
  void add(const Rule& rule, const std::string& to, const std::vector<const StoredTensor*>& sources);
  void shape_rows(Output& output, const Rule& rule, const std::vector<const StoredTensor*>& sources) const;

  std::string architecture_;
  bool is_bare_ = false;  // names without the "model." before them: of a model without a head
  std::map<std::string, const StoredTensor*, std::less<>> by_name_;  // names as a text model alone has them
  std::map<std::string, bool, std::less<>> taken_;
};

// The name less what wraps a text model in one that also sees or hears.
std::string text_model_name(std::string_view name);
bool matches(std::string_view pattern, std::string_view name);

}  // namespace assay::converting
