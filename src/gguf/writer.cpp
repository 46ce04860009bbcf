// The stream behind writer.h.
#include "gguf/writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "assay/error.h"
#include "base/shown.h"

namespace assay::gguf {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

uint64_t size_of(const std::filesystem::path& path) {  // 0 where there is none
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<uint64_t>(size);
}

bool begins_with(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::vector<char> found(bytes.size());
  std::ifstream in(path, std::ios::binary);
  in.read(found.data(), static_cast<std::streamsize>(found.size()));
  return in.gcount() == static_cast<std::streamsize>(found.size()) &&
         std::ranges::equal(std::as_bytes(std::span(found)), bytes);
}

// How many tensors of an interrupted file are there, padding and all; nullopt where it is none of this layout.
std::optional<size_t> n_whole_tensors(const std::filesystem::path& partial, const Layout& layout) {
  const uint64_t size = size_of(partial);
  if (size < layout.head.size() || !begins_with(partial, layout.head)) return std::nullopt;
  size_t n = 0;
  while (n < layout.offsets.size() && size >= layout.end(n)) ++n;
  return n;
}

}  // namespace

std::vector<std::filesystem::path> split_paths(const std::filesystem::path& prefix, size_t count) {
  const std::filesystem::path stem =
      prefix.extension() == ".gguf" ? std::filesystem::path(prefix).replace_extension() : prefix;
  std::vector<std::filesystem::path> paths(count, stem);
  for (size_t i = 0; i < count; ++i) paths[i] += fmt::format("-{:05}-of-{:05}.gguf", i + 1, count);
  return paths;
}

void require_other_files(const File& in, std::span<const std::filesystem::path> out) {
  for (const std::filesystem::path& source : in.paths()) {
    for (const std::filesystem::path& path : out) base::require_other_file(source, path);
  }
}

Writer::Writer(const std::filesystem::path& path, const Head& head, WriterOptions options)
    : Writer(path, std::vector<Head>(1, head), std::move(options)) {}

Writer::Writer(const std::filesystem::path& path, std::vector<Head> heads, WriterOptions options)
    : heads_(std::move(heads)), options_(std::move(options)) {
  if (heads_.empty()) throw Error(Errc::bad_request, fmt::format("{}: there is nothing to write", path.string()));
  const bool is_split = heads_[0].find("split.count") != nullptr;
  paths_ = is_split ? split_paths(path, heads_.size()) : std::vector<std::filesystem::path>(1, path);
  for (const Head& head : heads_) {
    bytes_total_ += lay_out(head).file_bytes;
    n_tensors_ += head.tensors().size();
  }
  files_.reserve(heads_.size());
  work_path_ = base::OutputFile::partial_of(paths_[0]);
  work_path_ += ".work";
  resuming_ = options_.resume && !options_.work.empty() && text_of(work_path_) == options_.work;
  uint64_t bytes_there = 0;  // that these files will take the place of
  for (const std::filesystem::path& file : paths_) bytes_there += size_of(base::OutputFile::partial_of(file));
  base::require_room(paths_[0], bytes_total_ - std::min(bytes_total_, bytes_there));
  open_shard();
  advance();
  std::error_code ignored;  // the text of other work; it may not be there
  std::filesystem::remove(work_path_, ignored);
  if (options_.work.empty()) return;
  try {
    base::OutputFile work(work_path_, options_.work.size());
    work.write(std::as_bytes(std::span(options_.work)));
    work.commit();
  } catch (...) {
    std::filesystem::remove(work_path_, ignored);
    throw;
  }
}

Writer::~Writer() {
  std::error_code ignored;  // it is of no use without the .partial, and does no harm
  if (!options_.work.empty()) std::filesystem::remove(work_path_, ignored);
}

void Writer::open_shard() {
  layout_ = lay_out(heads_[shard_]);
  tensor_ = 0;
  tensor_written_ = 0;
  uint64_t keep = 0;
  if (resuming_) {
    const auto n_whole = n_whole_tensors(base::OutputFile::partial_of(paths_[shard_]), layout_);
    tensor_ = n_whole.value_or(0);
    if (n_whole) keep = tensor_ == 0 ? layout_.head.size() : layout_.end(tensor_ - 1);
    resuming_ = n_whole && tensor_ == layout_.offsets.size();  // what comes behind an unfinished file is new
  }
  files_.emplace_back(paths_[shard_], layout_.file_bytes, keep);
  if (keep == 0) files_.back().write(layout_.head);
}

// Goes on to the next file that has a tensor to come.
void Writer::advance() {
  while (tensor_ == layout_.offsets.size() && shard_ + 1 < heads_.size()) {
    files_.back().close();
    bytes_before_ += layout_.file_bytes;
    first_tensor_ += heads_[shard_].tensors().size();
    ++shard_;
    open_shard();
  }
}

uint64_t Writer::bytes_written() const noexcept { return bytes_before_ + files_.back().position(); }

void Writer::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (next() == n_tensors_)
    throw Error(Errc::bad_request, fmt::format("{}: there are bytes after the last tensor", paths_[shard_].string()));
  const DeclaredTensor& tensor = next_tensor();
  if (bytes.size() > tensor.bytes - tensor_written_)
    throw Error(Errc::bad_request, fmt::format("{}: tensor {} gets more than its {} bytes", paths_[shard_].string(),
                                               base::shown(tensor.name), tensor.bytes));
  files_.back().write(bytes);
  tensor_written_ += bytes.size();
  if (tensor_written_ < tensor.bytes) return;
  files_.back().write_zeros(layout_.end(tensor_) - files_.back().position());
  ++tensor_;
  tensor_written_ = 0;
  advance();
}

void Writer::finish(const std::function<void(const std::vector<std::filesystem::path>& partials)>& check) {
  if (next() != n_tensors_)
    throw Error(Errc::bad_request, fmt::format("{}: tensor {} has not been written", paths_[shard_].string(),
                                               base::shown(next_tensor().name)));
  files_.back().close();
  if (check) {
    std::vector<std::filesystem::path> partials;
    for (const base::OutputFile& file : files_) partials.push_back(file.partial());
    check(partials);
  }
  // The first file of a split is the one that others are found through: it comes last.
  size_t i = files_.size();
  try {
    while (i-- > 0) files_[i].commit();
  } catch (...) {
    for (; i < files_.size(); ++i) files_[i].revoke();
    throw;
  }
}

}  // namespace assay::gguf
