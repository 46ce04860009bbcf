// All families, and the one that a config.json means.
#include "convert/families/families.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "base/shown.h"

namespace assay::converting {

const std::vector<Family>& families() {
  static const std::vector<Family> kAll = [] {
    std::vector<Family> all;
    for (const auto part :
         {llama_families, granite_families, qwen_families, gemma_families, norm_families, fused_families,
          expert_families, latent_families, encoder_families, delta_families, state_families}) {
      for (Family& family : part()) all.push_back(std::move(family));
    }
    return all;
  }();
  return kAll;
}

const Family& family_of(const Json& config) {
  const Json* named = config.find("architectures");
  if (named == nullptr || named->array() == nullptr || named->array()->size() != 1 ||
      named->array()->front().string() == nullptr) {
    throw Error(Errc::bad_file, fmt::format("config.json: architectures is {}; needs an array of one name",
                                            named == nullptr ? "missing" : named->shown()));
  }
  const std::string& wanted = *named->array()->front().string();
  const Json* text_model = config.find("text_config");
  const std::string_view type = text_model != nullptr && text_model->object() != nullptr
                                    ? text_model->text("model_type")
                                    : config.text("model_type");
  std::vector<std::string_view> known;
  bool is_class_known = false;
  for (const Family& family : families()) {
    for (const std::string_view name : family.classes) {
      known.push_back(name);
      if (name != wanted) continue;
      const std::vector<std::string_view>& types = family.options.model_types;
      if (types.empty() || std::find(types.begin(), types.end(), type) != types.end()) return family;
      is_class_known = true;
    }
  }
  if (is_class_known)
    throw Error(Errc::unsupported,
                fmt::format("config.json: the architecture {} is not known with a text model of the type {}",
                            base::shown(wanted), base::shown(type)));
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  throw Error(Errc::unsupported, fmt::format("config.json: the architecture {} is not known; assay converts {}",
                                             base::shown(wanted), fmt::join(known, ", ")));
}

}  // namespace assay::converting
