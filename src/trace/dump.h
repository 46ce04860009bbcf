// The dump: intermediate values of a run in one streamed file, from this engine or another. docs/dump-format.md is the
// format's authority; names of ops are those of our own Plan ("blk.3.attn_q"), so that two sources meet without a map.
//
//   header   "ASSAYDMP", u32 version = 1, u32 length, JSON of that length (DumpHeader), u64 XXH3-64 of all that
//   records  u32 kind: 1 a batch begins (tokens, positions, sequences, outputs), 2 a tensor (name, n_rows, width,
//     element type f32 or f64, values row-major); u64 length of the payload, the payload, u64 XXH3-64 of kind, length
//     and payload trailer  u32 kind 0, u64 number of records, XXH3-128 of all bytes before it; a file without it was
//     cut
// All integers little-endian.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/plan/executor.h"

namespace assay::trace {

inline constexpr uint32_t kDumpVersion = 1;
inline constexpr uint64_t kDumpHeaderBytesMax = uint64_t{1} << 20;
inline constexpr uint64_t kDumpNameBytesMax = 255;
inline constexpr uint64_t kDumpTokensMax = uint64_t{1} << 20;  // of one batch
inline constexpr uint64_t kDumpValuesMax = uint64_t{1} << 28;  // of one tensor: 2 GiB of doubles
inline constexpr int32_t kDumpSequencesMax = 1 << 16;

// What a source says of its own rounding; verify's bounds are made of it.
struct Declared {
  double unit_roundoff = 0x1p-24;  // of its float operations: a power of two
  bool own_sums =
      false;  // sums in the order of docs/numerics.md, of few roundings each; else bounds allow for any order
  int activation_bits = 0;  // of the activations that quantised weights are multiplied with: 0 (floats), 8 or 15
  int64_t activation_block =
      0;  // elements that share a scale: 32, 256, or 0 for what our own contract takes for the format
  bool activation_scale_f16 =
      false;  // of blocks of 32 activations, the scale and scale * sum are rounded to f16 (llama.cpp)
  bool activations_f16 = false;  // f16 and bf16 weights are multiplied with activations rounded to that type; an f16
                                 // cache's keys and values with queries and shares rounded to f16 (llama.cpp)
  ops::CacheType cache_k = ops::CacheType::f16;
  ops::CacheType cache_v = ops::CacheType::f16;
  bool as_llama_cpp = false;    // activations of 8 bits (activation_block 0), f16 and bf16 are made as llama.cpp makes
                                // them, step by step: verify then repeats them (bounds/known_activations.h)
  bool gelu_table_f16 = false;  // GELU through a table of half precision (llama.cpp)
  bool rope_angle_f32 =
      false;  // RoPE's angles are made in f32: that of pair i is off by up to (2 i + 3) unit roundoffs of itself
              // (llama.cpp multiplies step by step; transformers rounds the frequencies)
};

struct DumpHeader {
  std::string engine;  // "assay 0.1.0 cpu avx512", "llama.cpp 0.5.0", "transformers 4.57"
  std::string model;   // as its source calls it
  std::string architecture;
  std::string text;  // the prompt, where there was one
  int64_t n_layers = 0, d_model = 0, vocab_size = 0;
  Declared declared;
};

struct DumpBatch {
  std::vector<int32_t> tokens, positions, sequences;
  std::vector<uint8_t> outputs;
};

struct DumpTensor {
  std::string op;
  int64_t n_rows = 0, width = 0;
  bool is_f64 = false;
  std::vector<double> values;
};

// Writes as it goes. Error(io) where the file cannot be written. A writer that is destroyed without finish() leaves a
// file that readers call cut. Calls that break the format (a tensor before the first batch, values that are not n_rows
// * width) are bugs of the caller: std::logic_error.
class DumpWriter {
 public:
  DumpWriter(const std::string& path, const DumpHeader& header);  // text that is not UTF-8 is repaired
  ~DumpWriter();
  void begin_batch(const ops::Batch& batch);
  void add(std::string_view op, int64_t n_rows, int64_t width, std::span<const double> values, bool as_f64);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Reads record by record, in memory of one record. Everything is checked before it is believed: Error(bad_file) for
// another magic or version, a length beyond the file, a hash that differs, a missing trailer, positions that do not
// continue their sequence; Error(io) for a file that cannot be read.
class DumpReader {
 public:
  explicit DumpReader(const std::string& path);
  static DumpReader from_bytes(std::string bytes);  // of a file that is in memory already
  ~DumpReader();
  DumpReader(DumpReader&&) noexcept;
  DumpReader& operator=(DumpReader&&) noexcept;

  const DumpHeader& header() const noexcept;
  enum class Kind { batch, tensor, end };
  Kind next();                              // the next record; after the end: end again
  const DumpBatch& batch() const noexcept;  // after Kind::batch
  DumpTensor& tensor() noexcept;            // after Kind::tensor

 private:
  struct State;
  explicit DumpReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace assay::trace
