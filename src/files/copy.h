// Tensors' bytes from one file into new ones, and the proof that they arrived.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "assay/edit.h"
#include "gguf/writer.h"

namespace assay::files {

// Writes every tensor of `source` in its order, compares what was written with it, and finishes. False where it was
// cancelled. Memory: a buffer, whatever the size; the source's pages are given back behind the reader.
bool copy_tensors(const gguf::File& source, gguf::Writer& writer, const FileProgress& watch);

// Error(io) naming the first tensor whose type, shape or bytes are not the source's, by order; names may differ. False
// where it was cancelled.
bool compare_tensors(const gguf::File& source, const std::vector<std::filesystem::path>& written,
                     const FileProgress& watch, int64_t done, int64_t total);

}  // namespace assay::files
