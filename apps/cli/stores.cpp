// See stores.h.
#include "stores.h"

#include <fmt/format.h>

#include <cstdlib>

namespace assay::cli {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ModelStores stores_here() {
  StoreEnvironment e;
  e.home = variable("HOME");
  e.xdg_cache_home = variable("XDG_CACHE_HOME");
  e.assay_models = variable("ASSAY_MODELS");
  e.hf_hub_cache = variable("HF_HUB_CACHE");
  e.hf_home = variable("HF_HOME");
  e.ollama_models = variable("OLLAMA_MODELS");
  return ModelStores(store_folders(e));
}

std::string bytes_text(int64_t bytes) {
  constexpr double kMebibyte = 1 << 20, kGibibyte = 1 << 30;
  const auto value = static_cast<double>(bytes);
  if (value >= kGibibyte) return fmt::format("{:.2f} GiB", value / kGibibyte);
  return fmt::format("{:.1f} MiB", value / kMebibyte);
}

}  // namespace assay::cli
