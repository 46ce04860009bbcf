// One file to several, and back.
#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "assay/edit.h"
#include "assay/error.h"
#include "files/copy.h"
#include "gguf/writer.h"

namespace assay {
namespace {

SplitResult describe(const std::vector<gguf::Head>& heads, const std::vector<std::filesystem::path>& paths) {
  SplitResult result;
  for (size_t i = 0; i < heads.size(); ++i) {
    result.files.push_back({paths[i].string(), static_cast<int64_t>(heads[i].tensors().size()),
                            static_cast<int64_t>(gguf::lay_out(heads[i]).file_bytes)});
  }
  return result;
}

}  // namespace

SplitResult split_file(const std::string& path, const std::string& prefix, const SplitOptions& options) {
  if (options.bytes_max < 0 || options.n_tensors_max < 0 || (options.bytes_max == 0) == (options.n_tensors_max == 0))
    throw Error(Errc::bad_request, "a split needs the most bytes of one file, or the most tensors of one");
  const gguf::File file = gguf::File::open(path);
  const gguf::SplitRule rule{static_cast<uint64_t>(options.bytes_max), static_cast<uint64_t>(options.n_tensors_max)};
  std::vector<gguf::Head> heads = gguf::split(gguf::Head(file), rule);
  const std::vector<std::filesystem::path> paths = gguf::split_paths(prefix, heads.size());
  gguf::require_other_files(file, paths);
  SplitResult result = describe(heads, paths);
  if (options.dry_run) return result;
  gguf::Writer writer(prefix, std::move(heads));
  result.cancelled = !files::copy_tensors(file, writer, options.watch);
  return result;
}

SplitResult merge_files(const std::string& first, const std::string& out, const FileProgress& watch) {
  const gguf::File file = gguf::File::open(first);
  if (file.n_shards() == 1 && !file.metadata().has("split.count"))
    throw Error(Errc::bad_request, fmt::format("{}: is no split file; there is nothing to merge", first));
  const std::vector<std::filesystem::path> paths = {out};
  gguf::require_other_files(file, paths);
  const gguf::Head head(file);
  SplitResult result = describe({head}, paths);
  gguf::Writer writer(out, head);
  result.cancelled = !files::copy_tensors(file, writer, watch);
  return result;
}

}  // namespace assay
