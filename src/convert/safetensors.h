// Safetensors files: what their header says, held against the bytes, and views of the tensors. A header is a u64 of its
// length, JSON, then the data without holes or overlaps. Source: the format's description at
// github.com/huggingface/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/dtype.h"

namespace assay::converting {

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;
inline constexpr size_t kTensorsMax = size_t{1}
                                      << 20;       // of a folder: models of experts one by one have tens of thousands
inline constexpr size_t kFileTensorsMax = 65'536;  // of one file

struct StoredTensor {
  std::string name;
  std::string_view type;               // as the format names it: "BF16"
  std::optional<tensor::DType> dtype;  // where it is one of F32, F16, BF16
  std::vector<int64_t> shape;          // row-major; empty for a single number
  std::span<const std::byte> data;
  int shard = 0;

  int64_t cols() const noexcept { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const noexcept;  // product of all but the last
};

// The tensors of a file's bytes, in the order of their data. what: names the file in errors. Error(bad_file) for
// anything that is not as the format says.
std::vector<StoredTensor> read_safetensors(std::span<const std::byte> bytes, const std::string& what);

class SafetensorsFile {
 public:
  // Error(io, bad_file); Error(unsupported) for a pickle under this name.
  explicit SafetensorsFile(const std::filesystem::path& path);

  std::vector<StoredTensor>& tensors() noexcept { return tensors_; }
  const base::MappedFile& map() const noexcept { return map_; }

 private:
  base::MappedFile map_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace assay::converting
