// What lies in the stores' folders: one function a kind of store. They read names and sizes, and of Ollama's store its
// manifests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "assay/store.h"

namespace assay::store {

struct FoundFile {
  std::filesystem::path path;
  int64_t bytes = 0;
};

// Regular files below a folder, links to them among them, folders followed to a depth (1: the folder's own), hidden
// ones and links to folders left out. A folder that is not there holds nothing; one that cannot be read is a problem.
std::vector<FoundFile> files_below(const std::filesystem::path& folder, int depth_max,
                                   std::vector<std::string>& problems);
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder, std::vector<std::string>& problems);

// The GGUF files among them as models by their stems, parts of one model together.
std::vector<StoredModel> group_parts(const std::vector<FoundFile>& files, StoreKind kind);

void scan_plain(const StoreFolder& folder, int depth_max, StoreListing& out);
void scan_hugging_face(const StoreFolder& folder, StoreListing& out);
void scan_ollama(const StoreFolder& folder, StoreListing& out);

}  // namespace assay::store
