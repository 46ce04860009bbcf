// See version.h. The build writes assay_commit.h anew where the commit has changed.
#include "io/version.h"

#include "assay/version.h"
#include "assay_commit.h"

namespace assay::cli {

std::string version_text() { return std::string(ASSAY_VERSION) + " (" + ASSAY_COMMIT + ")"; }
std::string build_commit() { return ASSAY_COMMIT; }

}  // namespace assay::cli
