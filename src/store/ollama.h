// A manifest of Ollama's store.
#pragma once

#include <string>
#include <string_view>

namespace assay::store {

struct OllamaManifest {
  std::string model_blob;  // the name of its file in blobs/; empty where it has none
  std::string problem;     // why the model is more than that file, or is none
};

// Any bytes; what is no manifest is a problem. A digest never becomes more than sha256-HEX.
OllamaManifest parse_manifest(std::string_view text);

}  // namespace assay::store
