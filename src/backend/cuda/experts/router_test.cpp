// A router's product, the norm ahead of it and its routes in one kernel: logits against the reference, routes against
// the kernel that reads logits, the norm's outputs against its own kernel, by bits.
#include "backend/cuda/experts/router.h"

#include <cmath>

#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/this_card.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/plan/host_rows.h"
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
  if (!this_card().has_clusters_of_16()) GTEST_SKIP() << "no clusters of 16 blocks on this GPU";
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
  for (const ops::Gating gating :
       {ops::Gating::sigmoid, ops::Gating::softmax_of_chosen, ops::Gating::sqrt_softplus, ops::Gating::sparse_mixer}) {
    RouterCase c{64, 512, {}, true};
    c.route.gating = gating;
    c.route.n_used = 6;
    c.route.n_groups = 8, c.route.n_groups_used = 3;
    c.route.scale = 2.5f, c.route.near = 0.02f;
    check_router(c, seed += 10);
  }
}

// Every gating, few experts and more than a lane's own (kOwnMax), with groups of experts, equal logits among them.
TEST(CudaRoute, HasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const int64_t n_experts : {4, 33, 128, 132, 256}) {
    for (const ops::Gating gating : {ops::Gating::softmax, ops::Gating::sigmoid, ops::Gating::softmax_of_chosen}) {
      for (const int64_t n_groups : {1, 4}) {
        if (n_experts % n_groups != 0) continue;
        constexpr int64_t kUsed = 3, kRows = 40;
        ops::Plan plan;
        plan.values = {{"logits", n_experts}, {"routes", 2 * kUsed}};
        std::vector<float> x = test::random_activations(kRows * n_experts, 11), expected(2 * kUsed * kRows);
        for (size_t i = 0; i < x.size(); ++i) x[i] = i % 3 == 0 ? std::round(x[i]) : x[i];
        x[5] = x[2] = -0.0f, x[6] = 0.0f;
        float* const values[] = {x.data(), expected.data()};
        ops::HostRows<float> rows;
        rows.plan = &plan, rows.values = values;
        ops::Route op{0, ops::kNone, gating, kUsed, true, 1.5, 1};
        op.n_groups = n_groups, op.n_groups_used = n_groups == 1 ? 1 : 3;
        op.run(rows, 0, kRows);
        const DeviceBuffer logits = upload(x), y = poisoned(expected.size());
        RouteTask task;
        task.logits = logits.as<float>(), task.y = y.as<float>();
        task.gating = gating, task.n_experts = static_cast<int32_t>(n_experts), task.n_used = kUsed;
        task.n_groups = static_cast<int32_t>(op.n_groups);
        task.n_groups_used = static_cast<int32_t>(op.n_groups_used);
        task.normalise = true, task.scale = 1.5f, task.least_sum = static_cast<float>(op.least_sum);
        task.n_rows = kRows;
        route(task, Queue());
        EXPECT_TRUE(same_floats(download<float>(y.data(), expected.size()), expected)) << n_experts << ", " << n_groups;
      }
    }
  }
}

// Logits near each other, so that several share a weight, against the reference.
TEST(CudaRoute, SparseMixerHasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const int64_t n_experts : {2, 16, 33, 100}) {
    ops::Plan plan;
    plan.values = {{"logits", n_experts}, {"routes", 4}};
    std::vector<float> x = test::random_activations(n_experts, 7), expected(4);
    for (float& value : x) value = (n_experts == 33 ? -1.0f : 1.0f) + 0.01f * value;
    float* const values[] = {x.data(), expected.data()};
    ops::HostRows<float> rows;
    rows.plan = &plan, rows.values = values;
    const ops::Route op{0, ops::kNone, ops::Gating::sparse_mixer, 2, false, 1.0, 1};
    op.run(rows, 0, 1);
    EXPECT_LT(expected[0], 0.9f) << "nothing is near";
    const DeviceBuffer logits = upload(x), y = poisoned(4);
    RouteTask task;
    task.logits = logits.as<float>(), task.y = y.as<float>();
    task.gating = op.gating, task.n_experts = static_cast<int32_t>(n_experts), task.n_used = 2, task.n_rows = 1;
    task.near = static_cast<float>(op.near);
    route(task, Queue());
    EXPECT_TRUE(same_floats(download<float>(y.data(), 4), expected)) << n_experts;
  }
}

std::vector<std::byte> bytes_of(const DeviceBuffer& buffer) {
  return download<std::byte>(buffer.data(), buffer.size());
}

// The norm's sum, row and integers, and what comes of the row.
void check_norm(int64_t cols, int planes, quant::Activation kind, bool adds, uint64_t seed) {
  constexpr int64_t kExperts = 40, kUsed = 4;
  const std::vector<std::byte> w = test::random_weights(*quant::find_format(tensor::DType::F32), kExperts * cols, seed);
  const DeviceBuffer on_w = upload(w), a = upload(test::random_activations(cols, seed + 1)),
                     b = upload(test::random_activations(cols, seed + 2)),
                     of_norm = upload(test::random_activations(cols, seed + 3));
  struct Outputs {
    DeviceBuffer sum, y, integers, routes;
  };
  const size_t n = static_cast<size_t>(cols), n_words = quant::activations_bytes(kind, planes, 1, cols) / sizeof(float);
  const auto outputs = [&] { return Outputs{poisoned(n), poisoned(n), poisoned(n_words), poisoned(2 * kUsed)}; };
  const Outputs expected = outputs(), found = outputs();
  const auto norm_to = [&](const Outputs& to) {
    NormTask task;
    task.a = a.as<float>(), task.w = of_norm.as<float>();
    if (adds) task.b = b.as<float>(), task.sum = to.sum.as<float>();
    task.eps = 1e-5f, task.d = cols, task.n_rows = 1;
    task.y = to.y.as<float>();
    task.q = quant::carve(kind, planes, 1, cols, to.integers.data());
    return task;
  };
  RouterTask task;
  task.w = on_w.as<float>();
  task.cols = static_cast<int32_t>(cols);
  task.route.n_experts = kExperts, task.route.n_used = kUsed, task.route.n_rows = 1;
  norm_rows(OpKernel::norm_blocks, norm_to(expected), Queue());
  task.x = expected.y.as<float>();
  task.route.y = expected.routes.as<float>();
  router(task, Queue());
  task.x = nullptr;
  task.norm = norm_to(found);
  task.route.y = found.routes.as<float>();
  router(task, Queue());
  EXPECT_EQ(bytes_of(found.sum), bytes_of(expected.sum)) << cols;
  EXPECT_EQ(bytes_of(found.y), bytes_of(expected.y)) << cols;
  EXPECT_EQ(bytes_of(found.integers), bytes_of(expected.integers)) << cols;
  EXPECT_EQ(bytes_of(found.routes), bytes_of(expected.routes)) << cols;
}

TEST(CudaRouter, MakesTheNormsRow) {
  ASSAY_REQUIRE_GPU();
  if (!this_card().has_clusters_of_16()) GTEST_SKIP() << "no clusters of 16 blocks on this GPU";
  uint64_t seed = 7;
  for (const int planes : {1, 2}) {
    for (const bool adds : {false, true}) {
      for (const int64_t cols : {32, 96, 512, 1056, 2048})
        check_norm(cols, planes, quant::Activation::a32, adds, seed += 10);
      for (const int64_t cols : {256, 768, 2048}) check_norm(cols, planes, quant::Activation::a256, adds, seed += 10);
    }
  }
}

}  // namespace
}  // namespace assay::backend::cuda
