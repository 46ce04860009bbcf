// Where the tests' files lie: the one test source that knows this checkout's folders, so that the others compile the
// same everywhere.
#include "support/shared_data.h"

namespace assay::test {

std::filesystem::path data(const std::string& name) { return std::filesystem::path(ASSAY_TEST_DATA) / name; }

std::filesystem::path shared(const std::string& name) {
  const std::filesystem::path kept = data(name);
  return std::filesystem::exists(kept) ? kept : std::filesystem::path(ASSAY_UNPACKED_DATA) / name;
}

}  // namespace assay::test
