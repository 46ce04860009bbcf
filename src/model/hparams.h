// A model's hyper-parameters: what every decoder has, read from the file's metadata with a range for each. GGUF keys
// appear here, in rope_scaling.cpp and in arch/ only; a field that one family alone has is read in that family's file.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"

namespace assay::model {

inline constexpr int64_t kLayersMax = 4096;
inline constexpr int64_t kHeadsMax = 65536;
inline constexpr int64_t kHeadDimMax = 65536;
inline constexpr int64_t kWidthMax = int64_t{1} << 24;  // d_model, d_ff
inline constexpr int64_t kVocabMax = int64_t{1} << 22;
inline constexpr int64_t kContextMax = (int64_t{1} << 31) - 1;  // positions are int32

// Reads "<architecture>.<name>". A value outside its range is an Error(bad_file) with key, needed and found.
class KeyReader {
 public:
  KeyReader(const gguf::Metadata& metadata, std::string architecture);

  std::string key(std::string_view name) const;
  const gguf::Metadata& metadata() const noexcept { return *metadata_; }
  const std::string& architecture() const noexcept { return architecture_; }

  int64_t count(std::string_view name, int64_t min, int64_t max) const;  // required
  std::optional<int64_t> find_count(std::string_view name, int64_t min, int64_t max) const;
  double positive(std::string_view name, double max) const;  // required: 0 < value <= max
  std::optional<double> find_positive(std::string_view name, double max) const;
  double number(std::string_view name, double otherwise) const;  // finite
  bool flag(std::string_view name, bool otherwise) const;
  std::string_view text(std::string_view name, std::string_view otherwise) const;
  // One entry a layer, where layers that only predict further tokens may have none; a single value stands for all of
  // them.
  std::optional<std::vector<int64_t>> find_counts(std::string_view name, int64_t n_layers, int64_t min,
                                                  int64_t max) const;
  std::optional<std::vector<bool>> find_flags(std::string_view name, int64_t n_layers) const;  // an array alone
  // attention.sliding_window_pattern: which layers look through the window. An array of flags, or a period, or this
  // one: all but the last of each period (last_full), or all but the first.
  std::vector<bool> windowed_layers(int64_t n_layers, int64_t period, bool last_full) const;

  // Error(unsupported) for keys that change what a model computes and that nobody has read: running without them would
  // give wrong answers.
  void refuse_unread() const;

 private:
  std::string own(std::string_view name) const;  // the full key, marked as read
  int64_t n_predictors() const;     // of the layers those that only predict further tokens, as far as the file says
  const gguf::Metadata* metadata_;  // of the File, which must outlive this
  std::string architecture_;
  mutable std::set<std::string> read_;  // names asked for
};

struct Hparams {
  int64_t n_layers = 0;
  int64_t n_ctx_train = 0;
  int64_t d_model = 0;
  int64_t d_ff = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;  // elements of a value of a head
  int64_t rope_dim = 0;
  double rope_theta = 0;
  float norm_eps = 0;        // of RMS norms; 0: the file names none
  float layer_norm_eps = 0;  // of LayerNorms, likewise
  int64_t pooling_type = 0;  // how rows become an embedding: 0 not said, 1 mean, 2 first, 3 last, 4 a score
  // The same by layer: one value a layer, whether the file has one for each or one for all.
  std::vector<int64_t> n_heads_of, n_kv_heads_of, d_ff_of;
};

// Reads and checks them. Where a key has a value for each layer the largest is the model's; d_ff, n_heads and what
// follows from them are 0 where the file has none.
Hparams read_hparams(const KeyReader& keys);

}  // namespace assay::model
