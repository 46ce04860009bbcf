// Files below a folder, grouped into models; our store and LM Studio's are nothing more than that.
#include "store/scan.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

#include "store/names.h"
#include "store/origin.h"

namespace assay::store {
namespace fs = std::filesystem;

namespace {

// Calls take(path, is_folder) for what is in a folder and is not hidden.
template <class Take>
void each_in(const fs::path& folder, std::vector<std::string>& problems, Take take) {
  std::error_code problem;
  fs::directory_iterator at(folder, problem);
  for (; !problem && at != fs::directory_iterator(); at.increment(problem)) {
    const fs::path& path = at->path();
    if (path.filename().string().starts_with('.')) continue;
    std::error_code unknown;  // what is gone meanwhile is neither
    take(path, at->is_directory(unknown) && !at->is_symlink(unknown));
  }
  if (problem && problem != std::errc::no_such_file_or_directory)
    problems.push_back(fmt::format("{}: {}", folder.string(), problem.message()));
}

}  // namespace

std::vector<FoundFile> files_below(const fs::path& folder, int depth_max, std::vector<std::string>& problems) {
  std::vector<FoundFile> files;
  std::vector<std::pair<fs::path, int>> open = {{folder, 1}};
  while (!open.empty()) {
    const auto [current, depth] = open.back();
    open.pop_back();
    each_in(current, problems, [&, depth = depth](const fs::path& path, bool is_folder) {
      if (is_folder) {
        if (depth < depth_max) open.emplace_back(path, depth + 1);
        return;
      }
      struct stat info {};
      if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) files.push_back({path, info.st_size});
    });
  }
  std::sort(files.begin(), files.end(), [](const FoundFile& a, const FoundFile& b) { return a.path < b.path; });
  return files;
}

std::vector<fs::path> folders_in(const fs::path& folder, std::vector<std::string>& problems) {
  std::vector<fs::path> folders;
  each_in(folder, problems, [&](const fs::path& path, bool is_folder) {
    if (is_folder) folders.push_back(path);
  });
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<StoredModel> group_parts(const std::vector<FoundFile>& files, StoreKind kind) {
  std::map<std::tuple<fs::path, std::string, int64_t>, StoredModel> models;  // by folder, stem and number of parts
  std::map<std::tuple<fs::path, std::string, int64_t>, std::map<int64_t, std::string>> parts;
  for (const FoundFile& file : files) {
    const std::string file_name = file.path.filename().string();
    if (!is_gguf_name(file_name)) continue;
    const PartName part = part_name(file_name).value_or(PartName{stem_of(file_name), 1, 1});
    const auto key = std::tuple(file.path.parent_path(), part.stem, part.count);
    StoredModel& model = models[key];
    model.name = part.stem;
    model.store = kind;
    model.n_parts = part.count;
    model.bytes += file.bytes;
    parts[key][part.number] = file.path.string();
  }
  std::vector<StoredModel> result;
  for (auto& [key, model] : models) {
    for (int64_t number = 1; number <= model.n_parts && model.problem.empty(); ++number) {
      if (!parts[key].contains(number)) model.problem = fmt::format("part {} of {} is missing", number, model.n_parts);
    }
    for (const auto& [number, path] : parts[key]) model.parts.push_back(path);
    result.push_back(std::move(model));
  }
  return result;
}

void scan_plain(const StoreFolder& folder, int depth_max, StoreListing& out) {
  for (StoredModel& model : group_parts(files_below(folder.path, depth_max, out.problems), folder.kind)) {
    if (folder.kind == StoreKind::assay) {
      if (const auto note = read_origin(model.path())) {
        const ModelOrigin& origin = note->origin;
        if (!note->short_name.empty()) model.other_names.push_back(note->short_name);
        if (!origin.repository.empty() && !origin.quant.empty())
          model.other_names.push_back(origin.repository + ":" + origin.quant);
      }
    }
    out.models.push_back(std::move(model));
  }
}

}  // namespace assay::store
