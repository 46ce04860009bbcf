// What this build is: the version and the commit it was made of.
#pragma once

#include <string>

namespace assay::cli {

std::string
version_text();  // "0.1.0 (7065752)", "0.1.0 (7065752-dirty)"; from a tarball "0.1.0 (assay-0.1.0)", its folder's name
std::string build_commit();  // "7065752"

}  // namespace assay::cli
