// Reads one GGUF file's header, metadata and tensor directory from its bytes; for file.cpp, which knows about paths and
// shards.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gguf/file.h"

namespace assay::gguf {

struct Contents {
  uint32_t version = 0;
  uint64_t alignment = 32;
  Metadata metadata;
  std::vector<Tensor> tensors;  // shard 0; views into the bytes
};

// Checks everything; Errors begin with `source`. Time is linear in the bytes read.
Contents read_contents(std::span<const std::byte> bytes, const std::string& source);

// The same of a file whose tensors' data may be cut or misplaced: views have no data.
Contents read_directory(std::span<const std::byte> bytes, const std::string& source);

}  // namespace assay::gguf
