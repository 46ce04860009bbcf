// Ollama's store: manifests/HOST/NAMESPACE/MODEL/TAG is JSON that lists layers by digest, blobs/sha256-HEX are the
// layers.
#include "store/ollama.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <utility>

#include "base/shown.h"
#include "store/json_text.h"
#include "store/names.h"
#include "store/origin.h"
#include "store/scan.h"

namespace assay::store {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr size_t kManifestBytesMax = 4 << 20;
constexpr std::string_view kDigest = "sha256:";

// "registry.ollama.ai/library/llama3/latest" as Ollama's own commands show it.
std::string name_of(const fs::path& below) {
  std::vector<std::string> parts;
  for (const fs::path& part : below) parts.push_back(part.string());
  if (parts.size() != 4) return {};
  std::string name = fmt::format("{}:{}", parts[2], parts[3]);
  if (parts[0] == "registry.ollama.ai" && parts[1] == "library") return name;
  name = fmt::format("{}/{}", parts[1], name);
  return parts[0] == "registry.ollama.ai" ? name : fmt::format("{}/{}", parts[0], name);
}

}  // namespace

OllamaManifest parse_manifest(std::string_view text) {
  OllamaManifest manifest;
  const std::optional<json::value> value = parse_json(text);
  const json::object* object = value ? value->if_object() : nullptr;
  const json::value* layers = object == nullptr ? nullptr : object->if_contains("layers");
  if (layers == nullptr || !layers->is_array()) {
    manifest.problem = "its manifest is no JSON with layers";
    return manifest;
  }
  for (const json::value& layer : layers->get_array()) {
    if (!layer.is_object()) continue;
    const std::string type = text_of(layer.get_object(), "mediaType");
    if (type == "application/vnd.ollama.image.adapter")
      manifest.problem = "it has an adapter (LoRA), which would be left out";
    if (type != "application/vnd.ollama.image.model") continue;
    const std::string digest = text_of(layer.get_object(), "digest");
    if (!manifest.model_blob.empty()) {
      manifest.problem = "it has several model layers; one is served";
    } else if (!digest.starts_with(kDigest) || !is_sha256(std::string_view(digest).substr(kDigest.size()))) {
      manifest.problem = fmt::format("its manifest has the digest {}; sha256: and 64 hexadecimal digits are needed",
                                     base::shown(digest));
      return manifest;
    } else {
      manifest.model_blob = "sha256-" + digest.substr(kDigest.size());
    }
  }
  if (manifest.model_blob.empty() && manifest.problem.empty()) manifest.problem = "its manifest has no model layer";
  return manifest;
}

void scan_ollama(const StoreFolder& folder, StoreListing& out) {
  const fs::path manifests = fs::path(folder.path) / "manifests";
  for (const FoundFile& file : files_below(manifests, 4, out.problems)) {
    StoredModel model;
    model.store = folder.kind;
    model.name = name_of(file.path.lexically_relative(manifests));
    if (model.name.empty()) continue;
    constexpr std::string_view kLatest = ":latest";
    if (model.name.ends_with(kLatest))
      model.other_names.push_back(model.name.substr(0, model.name.size() - kLatest.size()));
    const OllamaManifest manifest = parse_manifest(read_small_file(file.path, kManifestBytesMax).value_or(""));
    model.problem = manifest.problem;
    const fs::path blob = fs::path(folder.path) / "blobs" / manifest.model_blob;
    model.parts.push_back((manifest.model_blob.empty() ? file.path : blob).string());
    struct stat info {};
    if (!manifest.model_blob.empty() && ::stat(blob.c_str(), &info) == 0) {
      model.bytes = info.st_size;
    } else if (model.problem.empty()) {
      model.problem = "the blob that its manifest names is missing";
    }
    out.models.push_back(std::move(model));
  }
}

}  // namespace assay::store
