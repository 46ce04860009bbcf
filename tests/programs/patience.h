// How many times longer than stated something may take under a sanitizer, and as unoptimised code.
#pragma once

namespace assay::test {

#if defined(ASSAY_SANITIZED)
inline constexpr double kPatience = 20;
#else
inline constexpr double kPatience = 1;
#endif

}  // namespace assay::test
