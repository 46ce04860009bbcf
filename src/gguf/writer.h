// Writes GGUF files as a stream: what they hold is declared first (head.h), then the tensors' bytes come in that order,
// in pieces of any size. Nothing of a tensor is kept in memory. The files appear under their names at the end, all or
// none (base/output_file.h).
//   Writer writer(path, head);
//   for (...) writer.write(bytes);
//   writer.finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "gguf/head.h"

namespace assay::gguf {

struct WriterOptions {
  // Not empty: a text that tells this work from any other (digests of input, types, flags). It lies beside what is
  // being written, so that after the process was killed another with the same text goes on where it stopped.
  std::string work;
  bool resume = false;  // go on, where a .partial of the same work and the same head is there; else from the start
};

class Writer {
 public:
  // One file, or the files of a split (see split()): PATH less `.gguf`, then -00001-of-00003.gguf. Errors as
  // OutputFile's.
  Writer(const std::filesystem::path& path, const Head& head, WriterOptions options = {});
  Writer(const std::filesystem::path& path, std::vector<Head> heads, WriterOptions options = {});
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  size_t n_tensors() const noexcept { return n_tensors_; }  // of all files
  // The tensor whose bytes come next, counted over all files; n_tensors() at the end. Begins above 0 where work was
  // resumed.
  size_t next() const noexcept { return first_tensor_ + tensor_; }
  const DeclaredTensor& next_tensor() const { return heads_[shard_].tensors()[tensor_]; }
  uint64_t bytes_total() const noexcept { return bytes_total_; }  // of all files
  uint64_t bytes_written() const noexcept;                        // of all files, for a progress line

  // The next bytes of the next tensor, at most all that it still lacks; the padding is written here. Error(io).
  void write(std::span<const std::byte> bytes);

  // After the last tensor: everything to the disk, `check` called with the paths of the files (each still with its
  // .partial name), then the renames. What check throws leaves nothing behind.
  void finish(const std::function<void(const std::vector<std::filesystem::path>& partials)>& check = {});
  const std::vector<std::filesystem::path>& paths() const noexcept { return paths_; }  // the files' names at the end

 private:
  void open_shard();
  void advance();

  std::vector<Head> heads_;
  std::vector<std::filesystem::path> paths_;
  std::vector<base::OutputFile> files_;  // up to the present one
  WriterOptions options_;
  std::filesystem::path work_path_;
  Layout layout_;  // of the present file
  size_t shard_ = 0;
  size_t tensor_ = 0;        // in the present file
  size_t first_tensor_ = 0;  // of the present file, over all
  uint64_t tensor_written_ = 0;
  size_t n_tensors_ = 0;
  uint64_t bytes_total_ = 0, bytes_before_ = 0;
  bool resuming_ = false;  // the present file may hold tensors already
};

// The names of the files of a split; prefix: with or without ".gguf".
std::vector<std::filesystem::path> split_paths(const std::filesystem::path& prefix, size_t count);

// Error(bad_request) where one of the files to write is one that `in` is read from (base::require_other_file).
void require_other_files(const File& in, std::span<const std::filesystem::path> out);

}  // namespace assay::gguf
