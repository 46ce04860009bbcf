// A GGUF file (v2 or v3, little-endian), mapped: metadata and tensor directory as views over the map. Split files are
// opened through their first shard. The limits of every count are the constants below; a limit that is hit names itself
// in the Error. Source: the GGUF specification of the ggml project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"
#include "tensor/view.h"

namespace assay::gguf {

// Limits. A string or array may also never announce more than the bytes that are left.
inline constexpr uint64_t kEntriesMax = 65'536;
inline constexpr uint64_t kTensorsMax = 131'072;
inline constexpr uint64_t kKeyBytesMax = 65'535;
inline constexpr uint64_t kTensorNameBytesMax = 63;  // other readers keep names in 64 bytes with a terminator
inline constexpr uint64_t kStringBytesMax = 16 << 20;
inline constexpr int kArrayDepthMax = 4;  // an array of arrays has depth 2
inline constexpr uint32_t kRankMax = 4;
inline constexpr uint64_t kDimensionMax = uint64_t{1} << 40;
inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr uint64_t kAlignmentMin = 8;
inline constexpr uint64_t kAlignmentMax = 65'536;
inline constexpr uint64_t kShardsMax = 1024;

struct Tensor {
  std::string_view name;
  tensor::TensorView view;   // shape row-major
  int shard = 0;             // which file of a split model
  uint64_t file_offset = 0;  // bytes from the start of that file
};

class File {
 public:
  // Maps and checks the file and, where it is the first of a split, its other shards. Throws Error(io) where it cannot
  // be opened, Error(bad_file) where it breaks the format, Error(unsupported) for big-endian files and type numbers not
  // served.
  static File open(const std::filesystem::path& path);
  // The same over bytes in memory, which must outlive the File (for tests and fuzzing). A shard of a split is refused
  // here.
  static File parse(std::span<const std::byte> bytes);

  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  uint32_t version() const noexcept;
  uint64_t alignment() const noexcept;
  uint64_t file_bytes() const noexcept;  // of all shards
  int n_shards() const noexcept;
  std::vector<std::filesystem::path> paths() const;  // of the shards; none for bytes in memory
  const Metadata& metadata() const noexcept;         // of the first shard; the others describe only themselves
  std::span<const Tensor> tensors() const noexcept;
  const Tensor* find(std::string_view name) const noexcept;
  // Error(io) if a file has been cut since it was opened, so that its map must not be touched. Cheap: one system call a
  // shard.
  void check_sizes() const;
  // A reader who goes through a file once gives back the memory of what it has read (bytes of one tensor, or a part of
  // them).
  void drop(std::span<const std::byte> part) const noexcept;

 private:
  struct State;
  explicit File(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace assay::gguf
