// See override_flag.h.
#include "flags/override_flag.h"

#include <fmt/format.h>

#include "assay/override.h"
#include "io/terminal.h"

namespace assay::cli {

void OverrideFlag::add(Flags& flags) {
  flags.values("--override-kv", texts, "KEY=TYPE:VALUE",
               "Metadata in the place of the file's, which is said; TYPE int, float, bool or str; may be repeated");
}

void OverrideFlag::say(const std::string& change) { notice(fmt::format("--override-kv: {}", change)); }

std::shared_ptr<const Model> OverrideFlag::load(const std::string& file, const LoadOptions& options) const {
  if (texts.empty()) return Model::load(file, options);
  const OverriddenModel loaded = load_overridden(file, texts, options);
  for (const std::string& change : loaded.changes) say(change);
  return loaded.model;
}

}  // namespace assay::cli
