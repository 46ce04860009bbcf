// See model_source.h.
#include "files/model_source.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "assay/convert.h"
#include "assay/error.h"

namespace assay::files {
namespace {

// Models are large: not the folder for small files, which may lie in memory.
std::filesystem::path make_folder(const std::string& within) {
  std::string folder = (std::filesystem::path(within.empty() ? "/var/tmp" : within) / "assay-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    throw Error(Errc::io,
                fmt::format("{}: no folder can be made there for the model as a file: {}; TMPDIR names another place",
                            folder, std::generic_category().message(errno)));
  }
  return folder;
}

void remove_folder(const std::filesystem::path& folder) noexcept {
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
}

}  // namespace

ModelSource::ModelSource(const std::string& path, const std::string& temporary, const FileProgress& watch)
    : file_(path) {
  if (!is_model_folder(path)) return;
  folder_ = make_folder(temporary);
  try {
    ConvertOptions options;
    options.check = false;
    options.keep_nonfinite = true;  // which the comparison counts
    options.cancelled = watch.cancelled;
    options.progress = [&](const std::string& tensor, int64_t, int64_t, uint64_t done, uint64_t total) {
      if (watch.progress) watch.progress(static_cast<int64_t>(done), static_cast<int64_t>(total), tensor);
    };
    const ConvertResult converted = convert(path, folder_ / "model.gguf", options);
    file_ = (folder_ / "model.gguf").string();
    cancelled_ = converted.cancelled;
    for (const std::string& note : converted.notes) notes_.push_back(fmt::format("{}: {}", path, note));
  } catch (...) {
    remove_folder(folder_);
    throw;
  }
}

ModelSource::~ModelSource() { remove_folder(folder_); }

}  // namespace assay::files
