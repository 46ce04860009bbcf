// A model's hyper-parameters: what every decoder has, read from the file's metadata with a range for each. GGUF keys appear here, in
// rope_scaling.cpp and in arch/ only; a field that one family alone has is read in that family's file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

 private:
  const gguf::Metadata* metadata_;  // of the File, which must outlive this
  std::string architecture_;
};

struct Hparams {
  int64_t n_layers = 0;
  int64_t n_ctx_train = 0;
  int64_t d_model = 0;
  int64_t d_ff = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rope_dim = 0;
  double rope_theta = 0;
  float norm_eps = 0;
};

// Reads and checks them. Error(unsupported) for keys that change the result and that no architecture here serves (experts, softcaps, ...).
Hparams read_hparams(const KeyReader& keys);

}  // namespace assay::model
