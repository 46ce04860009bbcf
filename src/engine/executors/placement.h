// Which device runs which layers. The CPU has the first ones and the table of tokens, the GPUs the last ones and the
// output; several GPUs share theirs out in runs of neighbouring layers. No bit depends on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "assay/context.h"

namespace assay::engine {

inline constexpr int kCpu = -1;

struct Placement {
  std::vector<int> devices;      // of each part, in the order of the layers: a GPU's number or kCpu
  std::vector<int32_t> borders;  // between the parts: the first layer of each but the first
};

// options: resolved. The output counts as one layer more. A device with a share has at least one, while there are any.
Placement place_layers(const ContextOptions& options, int64_t n_layers);

// "avx512", "cuda", "cuda1", "10 layers avx512, 20 cuda0": cpu is what the kernels of the CPU are called, gpu the GPUs'
// backend.
std::string describe(const Placement& placement, int64_t n_layers, const std::string& cpu,
                     std::string_view gpu = "cuda");

}  // namespace assay::engine
