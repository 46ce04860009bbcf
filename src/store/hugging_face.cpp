// Hugging Face's cache: hub/models--USER--REPO/snapshots/COMMIT/... holds links to blobs named by their SHA-256;
// refs/main has the commit that the branch was at last.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "store/names.h"
#include "store/origin.h"
#include "store/scan.h"

namespace assay::store {
namespace {

namespace fs = std::filesystem;

constexpr int kDepthMax = 4;  // of folders in a snapshot
constexpr size_t kRefBytesMax = 256;

std::string repository_of(std::string_view folder_name) {  // "models--USER--REPO"; old ones have no user
  folder_name.remove_prefix(std::string_view("models--").size());
  const size_t separator = folder_name.find("--");
  if (separator == std::string_view::npos) return std::string(folder_name);
  return fmt::format("{}/{}", folder_name.substr(0, separator), folder_name.substr(separator + 2));
}

// The snapshot that a name without a commit means: main's, else the newest.
fs::path current_snapshot(const fs::path& repository, const std::vector<fs::path>& snapshots) {
  std::string commit = read_small_file(repository / "refs" / "main", kRefBytesMax).value_or("");
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r')) commit.pop_back();
  const auto named =
      std::find_if(snapshots.begin(), snapshots.end(), [&](const fs::path& path) { return path.filename() == commit; });
  if (named != snapshots.end()) return *named;
  return *std::max_element(snapshots.begin(), snapshots.end(), [](const fs::path& a, const fs::path& b) {
    std::error_code unknown;
    return fs::last_write_time(a, unknown) < fs::last_write_time(b, unknown);
  });
}

// Names by QUANT where that tells a snapshot's models apart, else by stem.
void name_models(std::vector<StoredModel>& models, const std::string& prefix) {
  const auto label_of = [](const StoredModel& model) {
    const std::string quant =
        begins_without_case(model.name, "mmproj") ? "" : quant_of(model.name);  // a picture encoder is no such model
    return quant.empty() ? model.name : quant;
  };
  std::map<std::string, int> n_of_label;
  for (const StoredModel& model : models) ++n_of_label[lower(label_of(model))];
  for (StoredModel& model : models) {
    const std::string label = label_of(model);
    const bool is_alone = n_of_label[lower(label)] == 1;
    if (is_alone && label != model.name) model.other_names.push_back(fmt::format("{}:{}", prefix, model.name));
    model.name = fmt::format("{}:{}", prefix, is_alone ? label : model.name);
  }
}

bool same_file(const StoredModel& a, const StoredModel& b) {
  std::error_code unknown;
  return fs::equivalent(a.path(), b.path(), unknown);
}

}  // namespace

void scan_hugging_face(const StoreFolder& folder, StoreListing& out) {
  for (const fs::path& repository : folders_in(folder.path, out.problems)) {
    const std::string folder_name = repository.filename().string();
    if (!folder_name.starts_with("models--")) continue;
    const std::vector<fs::path> snapshots = folders_in(repository / "snapshots", out.problems);
    if (snapshots.empty()) continue;
    const fs::path current = current_snapshot(repository, snapshots);
    std::vector<StoredModel> models = group_parts(files_below(current, kDepthMax, out.problems), folder.kind);
    name_models(models, repository_of(folder_name));
    for (const fs::path& snapshot : snapshots) {
      if (snapshot == current) continue;
      std::vector<StoredModel> older = group_parts(files_below(snapshot, kDepthMax, out.problems), folder.kind);
      std::erase_if(older, [&](const StoredModel& model) {
        return std::any_of(models.begin(), models.end(),
                           [&](const StoredModel& other) { return same_file(model, other); });
      });
      name_models(older, fmt::format("{}@{}", repository_of(folder_name), snapshot.filename().string().substr(0, 7)));
      std::move(older.begin(), older.end(), std::back_inserter(models));
    }
    std::move(models.begin(), models.end(), std::back_inserter(out.models));
  }
}

}  // namespace assay::store
