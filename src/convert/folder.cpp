// See folder.h.
#include "convert/folder.h"

#include <fmt/format.h>

#include <fstream>
#include <set>
#include <unordered_map>

#include "assay/error.h"
#include "base/output_file.h"
#include "base/shown.h"

namespace assay::converting {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kConfigBytesMax = 16 << 20;
constexpr uint64_t kIndexBytesMax = 100'000'000;
constexpr size_t kShardsMax = 10'000;

}  // namespace

Folder::Folder(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  if (!fs::is_directory(path_, error)) throw Error(Errc::io, fmt::format("{}: no folder", path_.string()));
  if (!has("config.json"))
    throw Error(Errc::bad_file, fmt::format("{}: needs a config.json; there is none", path_.string()));
  config_ = *json_of("config.json");
  if (config_.object() == nullptr)
    throw Error(Errc::bad_file, fmt::format("{}: config.json is no JSON object", path_.string()));
  open_weights();
}

bool Folder::has(const std::string& name) const {
  std::error_code error;
  return fs::exists(path_ / name, error);
}

void Folder::require_other_file(const fs::path& out) const {
  for (const auto& entry : fs::directory_iterator(path_)) {
    const fs::path extension = entry.path().extension();
    const bool is_ours = extension == ".gguf" || extension == ".partial";  // also what a killed conversion left
    if (!is_ours) base::require_other_file(entry.path(), out);
  }
}

std::string Folder::text_of(const std::string& name, uint64_t bytes_max) const {
  const fs::path file = path_ / name;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) throw Error(Errc::io, fmt::format("{}: no regular file", file.string()));
  const uint64_t size = fs::file_size(file, error);
  if (error || size > bytes_max)
    throw Error(Errc::bad_file,
                fmt::format("{}: {} bytes; needs at most {}", file.string(), error ? 0 : size, bytes_max));
  std::ifstream in(file, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(size)))
    throw Error(Errc::io, fmt::format("{}: cannot be read", file.string()));
  return text;
}

std::optional<Json> Folder::json_of(const std::string& name) const {
  if (!has(name)) return std::nullopt;
  return Json::parse(text_of(name, kConfigBytesMax), name);
}

// A shard's path; a link out of the folder, as the cache of Hugging Face has them, is followed and noted.
fs::path Folder::file_of(const std::string& name) {
  const fs::path file = path_ / name;
  std::error_code error;
  const fs::path real = fs::canonical(file, error), folder = fs::canonical(path_, error);
  if (!error && real.parent_path() != folder) notes_.push_back(fmt::format("{} is a link to {}", name, real.string()));
  return file;
}

void Folder::refuse_without_weights() const {
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt") {
      throw Error(Errc::unsupported, fmt::format("{}: {} is a pickle, and there is no model.safetensors; assay opens "
                                                 "no pickles, since reading one runs its code: "
                                                 "save the model with save_pretrained(..., safe_serialization=True)",
                                                 path_.string(), entry.path().filename().string()));
    }
  }
  throw Error(Errc::bad_file,
              fmt::format("{}: needs model.safetensors, or shards and model.safetensors.index.json; found neither",
                          path_.string()));
}

void Folder::open_weights() {
  const bool has_index = has("model.safetensors.index.json"), has_one = has("model.safetensors");
  if (has_index && has_one) {
    throw Error(Errc::bad_file,
                fmt::format("{}: has a model.safetensors and an index of shards; needs one of them", path_.string()));
  }
  if (!has_index && !has_one) refuse_without_weights();
  if (has_index) {
    open_index(path_ / "model.safetensors.index.json");
  } else {
    files_.emplace_back(file_of("model.safetensors"));
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    for (StoredTensor& t : files_[i].tensors()) {
      t.shard = static_cast<int>(i);
      if (tensors_.size() == kTensorsMax)
        throw Error(Errc::bad_file, fmt::format("{}: more than {} tensors", path_.string(), kTensorsMax));
      tensors_.push_back(std::move(t));
    }
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!by_name_.emplace(tensors_[i].name, i).second) {
      throw Error(Errc::bad_file,
                  fmt::format("{}: {} is in two shards", path_.string(), base::shown(tensors_[i].name)));
    }
  }
}

void Folder::open_index(const fs::path& index) {
  const std::string what = index.filename().string();
  const std::string text = text_of(what, kIndexBytesMax);
  std::unordered_map<std::string, int> shard_of;  // by tensor
  std::vector<std::string> shards;
  std::unordered_map<std::string, int> numbers;
  JsonCursor in(text, what);
  bool has_map = false;
  in.object([&](const std::string& key) {
    if (key != "weight_map") return in.skip();
    has_map = true;
    in.object([&](const std::string& tensor) {
      std::string shard = in.string();
      if (shard.empty() || shard.find('/') != std::string::npos || shard.find('\\') != std::string::npos ||
          shard == "." || shard == ".." || !shard.ends_with(".safetensors")) {
        in.fail(fmt::format("{} is said to be in {}; needs the name of a .safetensors file of this folder",
                            base::shown(tensor), base::shown(shard)));
      }
      const auto [found, is_new] = numbers.emplace(shard, static_cast<int>(shards.size()));
      if (is_new) shards.push_back(std::move(shard));
      if (shards.size() > kShardsMax) in.fail(fmt::format("more than {} shards", kShardsMax));
      if (shard_of.size() == kTensorsMax) in.fail(fmt::format("more than {} tensors", kTensorsMax));
      shard_of.emplace(tensor, found->second);
    });
  });
  in.end();
  if (!has_map || shards.empty())
    throw Error(Errc::bad_file, fmt::format("{}: needs a weight_map of tensors to files", what));
  std::map<fs::path, std::string> real_names;
  for (const std::string& shard : shards) {
    const fs::path file = file_of(shard);
    if (!has(shard))
      throw Error(Errc::bad_file,
                  fmt::format("{}: the index names {}, which is not there", path_.string(), base::shown(shard)));
    const auto [other, is_new] = real_names.emplace(fs::canonical(file), shard);
    if (!is_new)
      throw Error(Errc::bad_file, fmt::format("{}: {} and {} are one file", path_.string(), base::shown(other->second),
                                              base::shown(shard)));
    files_.emplace_back(file);
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const StoredTensor& t : files_[i].tensors()) {
      const auto found = shard_of.find(t.name);
      if (found == shard_of.end() || found->second != static_cast<int>(i)) {
        throw Error(Errc::bad_file,
                    fmt::format("{}: {} is in {}; the index says {}", path_.string(), base::shown(t.name),
                                base::shown(shards[i]),
                                found == shard_of.end() ? std::string("nothing of it")
                                                        : base::shown(shards[static_cast<size_t>(found->second)])));
      }
      shard_of.erase(found);
    }
  }
  if (!shard_of.empty()) {
    throw Error(Errc::bad_file, fmt::format("{}: the index puts {} into {}, which has no such tensor", path_.string(),
                                            base::shown(shard_of.begin()->first),
                                            base::shown(shards[static_cast<size_t>(shard_of.begin()->second)])));
  }
}

const StoredTensor* Folder::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void Folder::drop(const StoredTensor& tensor, std::span<const std::byte> part) const noexcept {
  files_[static_cast<size_t>(tensor.shard)].map().drop(part);
}

void Folder::check_sizes() const {
  for (const SafetensorsFile& file : files_) file.map().check_size();
}

uint64_t Folder::weight_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const StoredTensor& t : tensors_) bytes += t.data.size();
  return bytes;
}

}  // namespace assay::converting
