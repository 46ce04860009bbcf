// Layers over devices: the CPU first, shares in order, no part without a layer.
#include "engine/executors/placement.h"

#include <gtest/gtest.h>

namespace assay::engine {
namespace {

ContextOptions on_gpus(int64_t n_gpu_layers, std::vector<int> devices, std::vector<float> shares = {}) {
  ContextOptions options;
  options.backend = Backend::cuda;
  options.n_gpu_layers = n_gpu_layers;
  options.devices = std::move(devices);
  options.device_shares = std::move(shares);
  return options;
}

void expect(const ContextOptions& options, int64_t n_layers, const std::vector<int>& devices,
            const std::vector<int32_t>& borders, const std::string& text) {
  const Placement placed = place_layers(options, n_layers);
  EXPECT_EQ(placed.devices, devices) << text;
  EXPECT_EQ(placed.borders, borders) << text;
  EXPECT_EQ(describe(placed, n_layers, "avx2"), text);
}

TEST(Placement, TheCpuHasTheFirstLayersAndTheGpuTheLast) {
  expect({}, 30, {kCpu}, {}, "avx2");
  expect(on_gpus(-1, {0}), 30, {0}, {}, "cuda");
  expect(on_gpus(30, {1}), 30, {1}, {}, "cuda1");
  expect(on_gpus(99, {0}), 30, {0}, {}, "cuda");
  expect(on_gpus(20, {0}), 30, {kCpu, 0}, {10}, "10 layers avx2, 20 cuda0");
  expect(on_gpus(1, {0}), 30, {kCpu, 0}, {29}, "29 layers avx2, 1 cuda0");
}

TEST(Placement, SeveralGpusShareTheLayersOut) {
  expect(on_gpus(-1, {0, 1}), 31, {0, 1}, {16}, "16 layers cuda0, 15 cuda1");
  expect(on_gpus(-1, {1, 0, 2}), 8, {1, 0, 2}, {3, 6}, "3 layers cuda1, 3 cuda0, 2 cuda2");
  expect(on_gpus(4, {0, 1}), 8, {kCpu, 0, 1}, {4, 7}, "4 layers avx2, 3 cuda0, 1 cuda1");
  expect(on_gpus(-1, {0, 0}), 2, {0, 0}, {1}, "1 layers cuda0, 1 cuda0");
}

TEST(Placement, SharesAreFollowedAndEmptyPartsLeftOut) {
  expect(on_gpus(-1, {0, 1}, {3, 1}), 31, {0, 1}, {24}, "24 layers cuda0, 7 cuda1");
  expect(on_gpus(-1, {0, 1}, {1, 0}), 30, {0}, {}, "cuda");
  expect(on_gpus(-1, {0, 1}, {0, 1}), 30, {1}, {}, "cuda1");
  expect(on_gpus(1, {0, 1, 2, 3}), 4, {kCpu, 0}, {3}, "3 layers avx2, 1 cuda0");
}

}  // namespace
}  // namespace assay::engine
