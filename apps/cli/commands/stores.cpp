// See stores.h.
#include "commands/stores.h"

#include <fmt/format.h>

#include <cstdlib>

namespace assay::cli {

ModelStores stores_here() {
  return ModelStores(
      store_folders(store_environment([](const char* name) -> const char* { return std::getenv(name); })));
}

std::string bytes_text(int64_t bytes) {
  constexpr double kMebibyte = 1 << 20, kGibibyte = 1 << 30;
  const auto value = static_cast<double>(bytes);
  if (value >= kGibibyte) return fmt::format("{:.2f} GiB", value / kGibibyte);
  return fmt::format("{:.1f} MiB", value / kMebibyte);
}

}  // namespace assay::cli
