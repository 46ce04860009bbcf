// The stores of this machine as the environment names them, and how what lies in them is shown.
#pragma once

#include <string>
#include <string_view>

#include "assay/store.h"

namespace assay::cli {

ModelStores stores_here();

// What -hf and -mu do: fetches the model where it is not here yet, and gives its path. Where no server can be asked,
// what was fetched from there before is taken, and said. Throws Interrupted.
std::string pull_model(const std::string& what);
struct Interrupted {
  int signal = 0;
};
inline constexpr int kExitNetwork = 6;

std::string bytes_text(int64_t bytes);  // "93.8 MiB"

}  // namespace assay::cli
