// --threads of commands that write a file of weights, which does not depend on it.
#pragma once

#include <cstdint>

#include "flags/flags.h"

namespace assay::cli {

inline void add_file_threads(Flags& flags, int64_t& n_threads) {
  flags.value("-t,--threads", n_threads, "N", "Threads; 0: one a core. The file does not depend on it")
      .between(0, 1024);
}

}  // namespace assay::cli
