// Opens GGUF files: maps the shards of a model and joins their directories.
#include "gguf/file.h"

#include <fmt/core.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "assay/error.h"
#include "base/mapped_file.h"
#include "base/shown.h"
#include "gguf/reader.h"

namespace assay::gguf {

struct File::State {
  Contents contents;  // tensors of all shards
  uint64_t file_bytes = 0;
  int n_shards = 1;
  std::vector<base::MappedFile> maps;  // empty for bytes in memory
  std::unordered_map<std::string_view, size_t> by_name;

  void index(const std::string& source);
};

namespace {

struct Split {
  uint64_t number = 0;  // of this shard, from 0
  uint64_t count = 1;
  std::optional<uint64_t> n_tensors;  // of all shards
};

[[noreturn]] void fail(const std::string& source, const std::string& problem) {
  throw Error(Errc::bad_file, fmt::format("{}: {}", source, problem));
}

bool is_shard_name(std::string_view source) {  // ...-00001-of-00002.gguf
  constexpr std::string_view kEnd = ".gguf";
  constexpr size_t kDigits = 5;
  const auto ends_in_number = [&](size_t end) {
    return end >= kDigits &&
           source.substr(end - kDigits, kDigits).find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (!source.ends_with(kEnd)) return false;
  const size_t count_end = source.size() - kEnd.size();
  constexpr std::string_view kOf = "-of-";
  if (!ends_in_number(count_end) || !source.substr(0, count_end - kDigits).ends_with(kOf)) return false;
  return ends_in_number(count_end - kDigits - kOf.size());
}

// What a file says of the split it belongs to; nullopt for a file that stands alone.
std::optional<Split> read_split(const Metadata& metadata, const std::string& source) {
  const auto count = metadata.find_unsigned("split.count");
  const auto number = metadata.find_unsigned("split.no");
  const auto n_tensors = metadata.find_unsigned("split.tensors.count");
  if (!count && !number && !n_tensors) return std::nullopt;
  if (!count || !number) fail(source, "has metadata 'split.count' or 'split.no' without the other; both are needed");
  if (*count == 0 && *number == 0 && !is_shard_name(source))
    return std::nullopt;  // llama-gguf-split leaves this in a file it has merged
  if (*count == 0 || *count > kShardsMax)
    fail(source, fmt::format("metadata 'split.count' is {}; 1 to {} are possible", *count, kShardsMax));
  if (*number >= *count) fail(source, fmt::format("metadata 'split.no' is {} of {} shards", *number, *count));
  return Split{*number, *count, n_tensors};
}

std::string shard_suffix(uint64_t number, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

// The path of the other shard, by the name of the first.
std::filesystem::path sibling(const std::filesystem::path& first, uint64_t count, uint64_t number) {
  const std::string name = first.filename().string();
  const std::string prefix = name.substr(0, name.size() - shard_suffix(0, count).size());
  return first.parent_path() / (prefix + shard_suffix(number, count));
}

void check_first_shard(const Split& split, const std::filesystem::path& path) {
  const std::string source = path.string();
  if (!path.filename().string().ends_with(shard_suffix(split.number, split.count))) {
    fail(source, fmt::format("is shard {} of {} by its metadata; its name must end in {}", split.number + 1,
                             split.count, shard_suffix(split.number, split.count)));
  }
  if (split.number != 0) {
    throw Error(Errc::bad_request, fmt::format("{}: is shard {} of {}; name the first one, which ends in {}", source,
                                               split.number + 1, split.count, shard_suffix(0, split.count)));
  }
}

}  // namespace

void File::State::index(const std::string& source) {
  by_name.reserve(contents.tensors.size());
  for (size_t i = 0; i < contents.tensors.size(); ++i) {
    const Tensor& tensor = contents.tensors[i];
    const auto [other, is_new] = by_name.emplace(tensor.name, i);
    if (!is_new) {
      fail(source, fmt::format("tensor {} is in shard {} and again in shard {}", base::shown(tensor.name),
                               contents.tensors[other->second].shard + 1, tensor.shard + 1));
    }
  }
}

File File::open(const std::filesystem::path& path) {
  const std::string source = path.string();
  auto state = std::make_unique<State>();
  state->maps.emplace_back(path);
  state->contents = read_contents(state->maps[0].bytes(), source);
  state->file_bytes = state->maps[0].bytes().size();
  const auto split = read_split(state->contents.metadata, source);
  if (split) {
    check_first_shard(*split, path);
    std::vector<Tensor>& tensors = state->contents.tensors;
    for (uint64_t number = 1; number < split->count; ++number) {
      const base::MappedFile& map = state->maps.emplace_back(sibling(path, split->count, number));
      const std::string shard_source = map.path().string();
      const Contents shard = read_contents(map.bytes(), shard_source);
      const auto own = read_split(shard.metadata, shard_source);
      if (!own || own->number != number || own->count != split->count) {
        fail(shard_source,
             fmt::format("its metadata does not say that it is shard {} of {}", number + 1, split->count));
      }
      state->file_bytes += map.bytes().size();
      for (Tensor tensor : shard.tensors) {
        tensor.shard = static_cast<int>(number);
        tensors.push_back(tensor);
      }
      if (tensors.size() > kTensorsMax)
        fail(source, fmt::format("its shards have more than {} tensors, which is the limit", kTensorsMax));
    }
    if (split->n_tensors && *split->n_tensors != tensors.size()) {
      fail(source,
           fmt::format("metadata 'split.tensors.count' is {}; its shards have {}", *split->n_tensors, tensors.size()));
    }
    state->n_shards = static_cast<int>(split->count);
  }
  state->index(source);
  return File(std::move(state));
}

File File::parse(std::span<const std::byte> bytes) {
  const std::string source = "the file";
  auto state = std::make_unique<State>();
  state->contents = read_contents(bytes, source);
  state->file_bytes = bytes.size();
  const auto split = read_split(state->contents.metadata, source);
  if (split && split->count > 1)
    fail(source, fmt::format("is shard {} of {}; only open() finds the others", split->number + 1, split->count));
  state->index(source);
  return File(std::move(state));
}

File::File(std::unique_ptr<State> state) : state_(std::move(state)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

uint32_t File::version() const noexcept { return state_->contents.version; }
uint64_t File::alignment() const noexcept { return state_->contents.alignment; }
uint64_t File::file_bytes() const noexcept { return state_->file_bytes; }
int File::n_shards() const noexcept { return state_->n_shards; }
std::vector<std::filesystem::path> File::paths() const {
  std::vector<std::filesystem::path> paths;
  for (const base::MappedFile& map : state_->maps) paths.push_back(map.path());
  return paths;
}
const Metadata& File::metadata() const noexcept { return state_->contents.metadata; }
std::span<const Tensor> File::tensors() const noexcept { return state_->contents.tensors; }

const Tensor* File::find(std::string_view name) const noexcept {
  const auto it = state_->by_name.find(name);
  return it == state_->by_name.end() ? nullptr : &state_->contents.tensors[it->second];
}

void File::check_sizes() const {
  for (const base::MappedFile& map : state_->maps) map.check_size();
}

void File::drop(std::span<const std::byte> part) const noexcept {
  if (part.empty()) return;
  const std::less_equal<const std::byte*> not_after;  // a total order, also between maps
  for (const base::MappedFile& map : state_->maps) {
    const auto bytes = map.bytes();
    if (not_after(bytes.data(), part.data()) && not_after(part.data() + part.size(), bytes.data() + bytes.size()))
      map.drop(part);
  }
}

}  // namespace assay::gguf
