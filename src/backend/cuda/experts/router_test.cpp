// A router's product and its routes in one kernel: logits against the reference, routes against the kernel that reads
// logits, by bits.
#include "backend/cuda/experts/router.h"

#include "backend/cuda/runtime/device_test.h"
#include "ops/linear/linear.h"
#include "quant/format.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

struct RouterCase {
  int64_t n_experts, cols;
  RouteTask route;
  bool has_biases = false;
};

void check_router(const RouterCase& c, uint64_t seed) {
  const quant::Format& format = *quant::find_format(tensor::DType::F32);
  const std::vector<std::byte> w = test::random_weights(format, c.n_experts * c.cols, seed);
  const std::vector<float> x = test::random_activations(c.cols, seed + 1),
                           bias = test::random_activations(c.n_experts, seed + 2);
  std::vector<float> logits;
  for (int64_t r = 0; r < c.n_experts; ++r) {
    const std::byte* row = w.data() + r * c.cols * static_cast<int64_t>(sizeof(float));
    logits.push_back(
        ops::linear_f32_ref(format, row, x.data(), c.cols, c.has_biases ? &bias[static_cast<size_t>(r)] : nullptr));
  }
  const auto n = static_cast<size_t>(2 * c.route.n_used);
  const DeviceBuffer on_w = upload(w), on_x = upload(x), on_bias = upload(bias), on_logits = upload(logits);
  const DeviceBuffer expected = poisoned(n), y = poisoned(n), y_alone = poisoned(n),
                     own_logits = poisoned(logits.size());
  RouterTask task;
  task.w = on_w.as<float>();
  task.x = on_x.as<float>();
  task.cols = static_cast<int32_t>(c.cols);
  task.route = c.route;
  task.route.n_experts = static_cast<int32_t>(c.n_experts);
  task.route.n_rows = 1;
  if (c.has_biases) task.bias = task.route.bias = on_bias.as<float>();
  RouteTask from_logits = task.route;
  from_logits.logits = on_logits.as<float>();
  from_logits.y = expected.as<float>();
  route(from_logits, Queue());
  task.route.y = y_alone.as<float>();
  router(task, Queue());
  task.logits = own_logits.as<float>();
  task.route.y = y.as<float>();
  router(task, Queue());
  const std::vector<float> routes = download<float>(expected.data(), n);
  EXPECT_TRUE(same_floats(download<float>(own_logits.data(), logits.size()), logits));
  EXPECT_TRUE(same_floats(download<float>(y.data(), n), routes));
  EXPECT_TRUE(same_floats(download<float>(y_alone.data(), n), routes));
}

TEST(CudaRouter, HasTheBitsOfProductAndRoute) {
  ASSAY_REQUIRE_GPU();
  if (!router_serves(128, 2048)) GTEST_SKIP() << "no clusters of blocks on this GPU";
  uint64_t seed = 1;
  for (const int64_t n_experts : {1, 8, 16, 17, 60, 127, 128}) {
    for (const int64_t cols : {32, 64, 256, 288, 1024, 2016, 2048}) {
      RouterCase c{n_experts, cols, {}};
      c.route.n_used = static_cast<int32_t>(std::min<int64_t>(n_experts, 8));
      c.route.normalise = cols % 64 == 0;
      c.has_biases = cols % 256 == 0;
      check_router(c, seed += 10);
    }
  }
  for (const ops::Gating gating : {ops::Gating::sigmoid, ops::Gating::softmax_of_chosen, ops::Gating::sqrt_softplus}) {
    RouterCase c{64, 512, {}, true};
    c.route.gating = gating;
    c.route.n_used = 6;
    c.route.n_groups = 8, c.route.n_groups_used = 3;
    c.route.scale = 2.5f;
    check_router(c, seed += 10);
  }
}

TEST(CudaRouter, ServesWhatItsRegistersHold) {
  ASSAY_REQUIRE_GPU();
  EXPECT_FALSE(router_serves(129, 2048));
  EXPECT_FALSE(router_serves(128, 2080));
  EXPECT_FALSE(router_serves(128, 48));
}

}  // namespace
}  // namespace assay::backend::cuda
