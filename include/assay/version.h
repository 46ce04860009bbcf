// The version of these headers: here and nowhere else (CMakeLists.txt and pyproject.toml read it from here). Valid C99.
// Until 1.0 a minor version may change the C++ API; the C interface (assay.h) has the soname's number for that.
#pragma once

#define ASSAY_VERSION_MAJOR 0
#define ASSAY_VERSION_MINOR 1
#define ASSAY_VERSION_PATCH 0
#define ASSAY_VERSION "0.1.0"
