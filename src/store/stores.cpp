// Stores and names: see assay/store.h.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

#include "assay/error.h"
#include "assay/store.h"
#include "base/shown.h"
#include "gguf/file.h"
#include "store/names.h"
#include "store/origin.h"
#include "store/scan.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using store::begins_without_case;
using store::equal_without_case;

constexpr int kOwnDepthMax = 3, kStudioDepthMax = 4;  // user/repository/file, and one more
constexpr size_t kNearestMax = 3;

// Models that are the same file count once.
std::vector<StoredModel> distinct(std::vector<StoredModel> models) {
  std::vector<StoredModel> result;
  for (StoredModel& model : models) {
    const bool is_known = std::any_of(result.begin(), result.end(), [&](const StoredModel& other) {
      std::error_code unknown;
      return model.path() == other.path() || fs::equivalent(model.path(), other.path(), unknown);
    });
    if (!is_known) result.push_back(std::move(model));
  }
  return result;
}

template <class Matches>
std::vector<StoredModel> models_where(const std::vector<StoredModel>& models, Matches matches) {
  std::vector<StoredModel> result;
  for (const StoredModel& model : models) {
    if (matches(model.name) || std::any_of(model.other_names.begin(), model.other_names.end(), matches))
      result.push_back(model);
  }
  return distinct(std::move(result));
}

[[noreturn]] void refuse_ambiguous(const std::string& text, const std::vector<StoredModel>& candidates) {
  std::string list;
  for (const StoredModel& model : candidates) {
    list += fmt::format("{}{} ({}: {})", list.empty() ? "" : ", ", model.name, name(model.store), model.path());
  }
  throw Error(Errc::bad_request,
              fmt::format("{}: {} models have this name or begin so; name one of them, or a path: {}", text,
                          candidates.size(), list));
}

// Names a user may have meant: close to the text as a whole or in their beginning. with_short: those that `assay pull`
// knows as well.
std::vector<std::string> nearest(const std::string& text, const std::vector<StoredModel>& models, bool with_short) {
  std::vector<std::tuple<size_t, bool, std::string>> found;  // by distance; what is here comes first
  const auto consider = [&](std::string_view candidate, bool is_here) {
    if (text.empty() || text.size() > 100 || candidate.size() > 200) return;
    size_t distance = store::edit_distance(text, candidate);
    for (size_t n = text.size() - 1; n <= text.size() + 1; ++n)
      distance = std::min(distance, store::edit_distance(text, candidate.substr(0, n)));
    if (distance <= std::max<size_t>(2, text.size() / 3)) found.emplace_back(distance, !is_here, candidate);
  };
  for (const StoredModel& model : models) {
    consider(model.name, true);
    for (const std::string& other : model.other_names) consider(other, true);
  }
  if (with_short) {
    for (const ShortName& known : short_names()) consider(known.name, false);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> result;
  for (const auto& [distance, is_elsewhere, candidate] : found) {
    if (result.size() < kNearestMax && std::find(result.begin(), result.end(), candidate) == result.end())
      result.push_back(candidate);
  }
  return result;
}

[[noreturn]] void refuse_unknown(const std::string& text, const std::vector<StoredModel>& models) {
  std::error_code unknown;
  if (std::filesystem::is_directory(text, unknown)) {
    throw Error(Errc::io,
                fmt::format("{}: is a folder; needs a GGUF file, which `assay convert {} OUT` makes of a folder of "
                            "safetensors from Hugging Face",
                            text, text));
  }
  const bool is_fetchable =
      std::any_of(short_names().begin(), short_names().end(), [&](const ShortName& s) { return s.name == text; }) ||
      store::is_repository(text.substr(0, text.find(':')));
  std::string list;
  for (const std::string& candidate : nearest(text, models, true)) list += (list.empty() ? "" : ", ") + candidate;
  throw Error(Errc::io,
              fmt::format("{}: there is no such file and no model of that name{}{}; {}", text,
                          list.empty() ? "" : "; nearest: ", list,
                          is_fetchable ? fmt::format("`assay pull {}` fetches it", text)
                                       : std::string("`assay list` shows those here, `assay pull` fetches others")));
}

}  // namespace

std::string_view name(StoreKind kind) noexcept {
  switch (kind) {
    case StoreKind::assay: return "assay";
    case StoreKind::hugging_face: return "huggingface";
    case StoreKind::ollama: return "ollama";
    case StoreKind::lm_studio: return "lmstudio";
  }
  return "";
}

StoreEnvironment store_environment(const std::function<const char*(const char* name)>& variable) {
  const auto text = [&](const char* name) {
    const char* value = variable(name);
    return value == nullptr ? std::string() : std::string(value);
  };
  StoreEnvironment e;
  e.home = text("HOME");
  e.xdg_cache_home = text("XDG_CACHE_HOME");
  e.assay_models = text("ASSAY_MODELS");
  e.hf_hub_cache = text("HF_HUB_CACHE");
  e.hf_home = text("HF_HOME");
  e.ollama_models = text("OLLAMA_MODELS");
  return e;
}

std::vector<StoreFolder> store_folders(const StoreEnvironment& e) {
  const auto first_of =
      [](std::initializer_list<std::pair<std::string, std::string>> choices) {  // a variable, what follows it
        for (const auto& [variable, rest] : choices) {
          if (!variable.empty()) return variable + rest;
        }
        return std::string();
      };
  const std::vector<StoreFolder> all = {
      {StoreKind::assay,
       first_of({{e.assay_models, ""}, {e.xdg_cache_home, "/assay/models"}, {e.home, "/.cache/assay/models"}})},
      {StoreKind::hugging_face, first_of({{e.hf_hub_cache, ""},
                                          {e.hf_home, "/hub"},
                                          {e.xdg_cache_home, "/huggingface/hub"},
                                          {e.home, "/.cache/huggingface/hub"}})},
      {StoreKind::ollama, first_of({{e.ollama_models, ""}, {e.home, "/.ollama/models"}})},
      {StoreKind::lm_studio, first_of({{e.home, "/.lmstudio/models"}})},
      {StoreKind::lm_studio, first_of({{e.home, "/.cache/lm-studio/models"}})},
  };
  std::vector<StoreFolder> folders;
  std::copy_if(all.begin(), all.end(), std::back_inserter(folders),
               [](const StoreFolder& f) { return !f.path.empty(); });
  return folders;
}

ModelStores::ModelStores(std::vector<StoreFolder> folders) : folders_(std::move(folders)) {}

const std::string& ModelStores::own_folder() const {
  const auto own =
      std::find_if(folders_.begin(), folders_.end(), [](const StoreFolder& f) { return f.kind == StoreKind::assay; });
  if (own == folders_.end())
    throw Error(Errc::bad_request, "there is no folder for models: neither ASSAY_MODELS nor HOME is set");
  return own->path;
}

StoreListing ModelStores::list() const {
  StoreListing listing;
  for (const StoreFolder& folder : folders_) {
    const size_t n_before = listing.models.size();
    switch (folder.kind) {
      case StoreKind::assay: store::scan_plain(folder, kOwnDepthMax, listing); break;
      case StoreKind::lm_studio: store::scan_plain(folder, kStudioDepthMax, listing); break;
      case StoreKind::hugging_face: store::scan_hugging_face(folder, listing); break;
      case StoreKind::ollama: store::scan_ollama(folder, listing); break;
    }
    std::stable_sort(listing.models.begin() + static_cast<std::ptrdiff_t>(n_before), listing.models.end(),
                     [](const StoredModel& a, const StoredModel& b) { return a.name < b.name; });
  }
  return listing;
}

StoredModel ModelStores::find(const std::string& text) const {
  const std::vector<StoredModel> models = list().models;
  if (text.empty()) refuse_unknown(text, models);
  const auto exact = [&](const std::string& candidate) { return candidate == text; };
  const auto caseless = [&](const std::string& candidate) { return equal_without_case(candidate, text); };
  const auto beginning = [&](const std::string& candidate) { return begins_without_case(candidate, text); };
  for (std::vector<StoredModel> found : {models_where(models, exact), models_where(models, caseless)}) {
    if (found.empty()) continue;
    const auto is_other = [](const StoredModel& model) { return model.store != StoreKind::assay; };
    if (!std::all_of(found.begin(), found.end(), is_other)) std::erase_if(found, is_other);
    if (found.size() > 1) refuse_ambiguous(text, found);
    return found.front();
  }
  const std::vector<StoredModel> found = models_where(models, beginning);
  if (found.size() > 1) refuse_ambiguous(text, found);
  if (found.empty()) refuse_unknown(text, models);
  return found.front();
}

std::string ModelStores::resolve(const std::string& path_or_name) const {
  std::error_code unknown;
  const fs::file_status status = fs::status(path_or_name, unknown);
  if (fs::exists(status) && !fs::is_directory(status)) return path_or_name;
  const StoredModel model = find(path_or_name);
  if (!model.problem.empty()) {
    const bool is_cut = static_cast<int64_t>(model.parts.size()) < model.n_parts || model.bytes == 0;
    throw Error(is_cut ? Errc::io : Errc::unsupported,
                fmt::format("{} ({}): {}", model.name, model.path(), model.problem));
  }
  return model.path();
}

std::vector<std::string> ModelStores::removable(const std::string& text) const {
  const fs::path folder = own_folder();
  const std::vector<StoredModel> models = list().models;
  std::vector<StoredModel> found =
      models_where(models, [&](const std::string& candidate) { return candidate == text; });
  const bool is_elsewhere = !found.empty() && std::none_of(found.begin(), found.end(), [](const StoredModel& m) {
    return m.store == StoreKind::assay;
  });
  std::erase_if(found, [](const StoredModel& m) { return m.store != StoreKind::assay; });
  if (found.size() > 1) refuse_ambiguous(text, found);
  std::vector<std::string> paths;
  if (!found.empty()) paths = found.front().parts;
  std::vector<std::string> problems;
  for (const store::FoundFile& file : store::files_below(folder, 1, problems)) {  // what a pull left
    const std::string file_name = file.path.filename().string();
    if (!file_name.ends_with(".partial")) continue;
    const std::string target = file_name.substr(0, file_name.size() - std::string_view(".partial").size());
    const auto part = store::part_name(target);
    if (part ? part->stem == text : store::is_gguf_name(target) && store::stem_of(target) == text)
      paths.push_back(file.path.string());
  }
  if (!paths.empty()) return paths;
  if (is_elsewhere) {
    throw Error(Errc::bad_request,
                fmt::format("{}: is in another program's store, which is only read; its own program removes it", text));
  }
  std::string list;
  for (const std::string& candidate : nearest(text, models, false))
    list += (list.empty() ? "; nearest: " : ", ") + candidate;
  throw Error(Errc::io, fmt::format("{}: there is no model of exactly that name in {}{}", text, folder.string(), list));
}

void ModelStores::remove(const std::string& text) const {
  for (const std::string& path : removable(text)) {
    std::error_code problem;
    fs::remove(path, problem);
    if (problem) throw Error(Errc::io, fmt::format("{}: cannot be removed: {}", path, problem.message()));
    fs::remove(store::origin_path(path), problem);
    if (problem)
      throw Error(Errc::io,
                  fmt::format("{}: cannot be removed: {}", store::origin_path(path).string(), problem.message()));
  }
}

std::optional<ModelOrigin> find_origin(const StoredModel& model, size_t i_part) {
  const fs::path path = model.parts.at(i_part);
  if (model.store == StoreKind::assay) {
    const auto note = store::read_origin(path);
    return note ? std::optional(note->origin) : std::nullopt;
  }
  std::error_code unknown;
  const std::string target = model.store == StoreKind::hugging_face
                                 ? fs::read_symlink(path, unknown).filename().string()
                                 : path.filename().string();
  const std::string digest = target.starts_with("sha256-") ? target.substr(7) : target;
  ModelOrigin origin;
  if (store::is_sha256(digest)) origin.sha256 = digest;
  if (model.store == StoreKind::hugging_face) origin.repository = model.name.substr(0, model.name.find_first_of("@:"));
  if (origin.sha256.empty() && origin.repository.empty()) return std::nullopt;
  return origin;
}

ModelFacts read_facts(const StoredModel& model) {
  ModelFacts facts;
  facts.problem = model.problem;
  if (!facts.problem.empty()) return facts;
  try {
    const gguf::File file = gguf::File::open(model.path());
    const gguf::Metadata& metadata = file.metadata();
    facts.title = metadata.find_string("general.name").value_or("");
    facts.architecture = metadata.find_string("general.architecture").value_or("");
    facts.n_ctx_train =
        static_cast<int64_t>(metadata.find_unsigned(facts.architecture + ".context_length").value_or(0));
    facts.template_bytes = static_cast<int64_t>(metadata.find_string("tokenizer.chat_template").value_or("").size());
    std::map<std::string_view, int64_t> elements;
    for (const gguf::Tensor& tensor : file.tensors()) {
      elements[tensor::traits(tensor.view.dtype).name] += tensor.view.shape.elements();
      facts.n_parameters += tensor.view.shape.elements();
    }
    const auto most = std::max_element(elements.begin(), elements.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != elements.end()) facts.weights_type = most->first;
  } catch (const Error& error) {
    facts = {};
    facts.problem = error.what();
  }
  return facts;
}

}  // namespace assay
