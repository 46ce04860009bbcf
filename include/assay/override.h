// A model with other metadata than its file's, as llama.cpp's --override-kv spells them: llama.context_length=int:4096.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assay/model.h"

namespace assay {

struct OverriddenModel {
  std::shared_ptr<const Model> model;
  std::vector<std::string> changes;  // a line each: "llama.context_length is 4096, the file says 8192"
};

// Model::load, with these in the place of the file's metadata: each KEY=TYPE:VALUE, TYPE one of int, float, bool and
// str; several with commas. Error(bad_request) for anything else and for keys that say how the file's bytes lie.
OverriddenModel load_overridden(const std::string& path, const std::vector<std::string>& override_kv,
                                const LoadOptions& options = {});

}  // namespace assay
