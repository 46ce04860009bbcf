// A model's folder as Hugging Face lays it out: safetensors (one file, or shards and their index), config.json, and
// what belongs to the tokenizer.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/json.h"
#include "convert/safetensors.h"

namespace assay::converting {

class Folder {
 public:
  // Error(io, bad_file, unsupported), naming the file.
  explicit Folder(std::filesystem::path path);
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  const Json& config() const noexcept { return config_; }
  const std::vector<StoredTensor>& tensors() const noexcept {
    return tensors_;
  }  // by shard, in the order of their data
  const StoredTensor* find(std::string_view name) const noexcept;
  void drop(const StoredTensor& tensor, std::span<const std::byte> part) const noexcept;
  void check_sizes() const;  // Error(io) where a shard has become shorter
  uint64_t weight_bytes() const noexcept;

  bool has(const std::string& name) const;
  std::string text_of(const std::string& name,
                      uint64_t bytes_max) const;               // of a file that is there; UTF-8 is not looked at
  std::optional<Json> json_of(const std::string& name) const;  // nullopt: there is no such file

  // Error(bad_request) where `out` is a file of the folder that is no GGUF file: one that is read, or might be.
  void require_other_file(const std::filesystem::path& out) const;

  const std::vector<std::string>& notes() const noexcept { return notes_; }  // links that were followed

 private:
  std::filesystem::path file_of(const std::string& name);
  void open_weights();
  void open_index(const std::filesystem::path& index);
  [[noreturn]] void refuse_without_weights() const;

  std::filesystem::path path_;
  Json config_;
  std::vector<SafetensorsFile> files_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string_view, size_t> by_name_;
  std::vector<std::string> notes_;
};

}  // namespace assay::converting
