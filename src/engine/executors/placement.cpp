// See placement.h.
#include "engine/executors/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace assay::engine {

Placement place_layers(const ContextOptions& options, int64_t n_layers) {
  if (options.backend == Backend::cpu) return {{kCpu}, {}};
  Placement placed;
  const int64_t n_gpu = options.n_gpu_layers < 0 ? n_layers : std::min(options.n_gpu_layers, n_layers);
  const int64_t first_gpu_layer = n_layers - n_gpu;
  if (first_gpu_layer > 0) placed.devices.push_back(kCpu);
  double total = 0, before = 0;
  int64_t n_waiting = 0;  // devices with a share that have no layer yet
  const auto share = [&](size_t i) {
    return options.device_shares.empty() ? 1.0 : static_cast<double>(options.device_shares[i]);
  };
  for (size_t i = 0; i < options.devices.size(); ++i) {
    total += share(i);
    n_waiting += share(i) > 0 ? 1 : 0;
  }
  int64_t begin = first_gpu_layer;
  for (size_t i = 0; i < options.devices.size() && begin < n_layers; ++i) {
    if (!(share(i) > 0)) continue;
    before += share(i);
    --n_waiting;
    const int64_t fair = first_gpu_layer + std::llround(before / total * static_cast<double>(n_gpu + 1));
    const int64_t end =
        n_waiting == 0 ? n_layers : std::clamp<int64_t>(fair, begin + 1, std::max(begin + 1, n_layers - n_waiting));
    if (!placed.devices.empty()) placed.borders.push_back(static_cast<int32_t>(begin));
    placed.devices.push_back(options.devices[i]);
    begin = end;
  }
  return placed;
}

std::string describe(const Placement& placement, int64_t n_layers, const std::string& cpu, std::string_view gpu) {
  if (placement.devices.size() == 1) {
    const int device = placement.devices.front();
    return device == kCpu ? cpu : device == 0 ? std::string(gpu) : fmt::format("{}{}", gpu, device);
  }
  std::string text;
  for (size_t i = 0; i < placement.devices.size(); ++i) {
    const int64_t begin = i == 0 ? 0 : placement.borders[i - 1],
                  end = i == placement.borders.size() ? n_layers : placement.borders[i];
    const std::string device = placement.devices[i] == kCpu ? cpu : fmt::format("{}{}", gpu, placement.devices[i]);
    text += fmt::format("{}{}{} {}", text.empty() ? "" : ", ", end - begin, i == 0 ? " layers" : "", device);
  }
  return text;
}

}  // namespace assay::engine
