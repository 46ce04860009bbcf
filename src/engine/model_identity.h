// Which model a file is: a digest of its bytes, kept beside what was made with it, so that a large file is read once
// and not at every start.
#pragma once

#include <filesystem>

#include "assay/model.h"
#include "pages/prompt_file.h"

namespace assay::engine {

// XXH3-128 over all shards' bytes, and over what stands in the place of their metadata, where anything does. folder: where the digests of files seen before are kept, by path, size and time; a
// file that changed is read again.
pages::Digest model_identity(const Model& model, const std::filesystem::path& folder);

}  // namespace assay::engine
