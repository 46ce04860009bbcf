// The two kernels of a token's experts against the references of the five ops that they are, by bits: every format that
// they take, one plane and two, ranks in one expert's rows or another's, outputs that others read too.
#include "backend/cuda/experts/expert_token.h"

#include <algorithm>
#include <string>

#include "backend/cuda/kernels/expert_table.h"
#include "backend/cuda/linear/matrix_test.h"
#include "backend/cuda/runtime/device_test.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/linear.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

struct TokenShape {
  int64_t n_experts, n_used, d_in, width, d_out;
  bool has_bias, weighted;
};

struct Product {
  std::vector<std::byte> bytes;
  std::vector<float> bias;
  Uploaded w;
  DeviceBuffer on_bias;
  Product(const quant::Format& format, int64_t n_rows, int64_t cols, uint64_t seed)
      : bytes(test::random_weights(format, n_rows * cols, seed)), bias(test::random_activations(n_rows, seed + 1)),
        w(lay(format.dtype, n_rows, cols, bytes, false)), on_bias(upload(bias)) {}
};

struct Row {
  std::vector<std::byte> memory;
  quant::Activations x;
  Row(const quant::Format& format, int planes, int64_t n_rows, const std::vector<float>& values) {
    const auto k = static_cast<int64_t>(values.size()) / n_rows;
    memory.resize(quant::activations_bytes(format.activation, planes, n_rows, k));
    x = quant::carve(format.activation, planes, n_rows, k, memory.data());
    for (int64_t i = 0; i < n_rows; ++i) quant::quantise_row_ref(values.data() + i * k, x, i);
  }
};

// Of every rank, rows of its expert.
std::vector<float> products_of(const quant::Format& format, const Product& p, const std::vector<int64_t>& experts,
                               const quant::Activations& x, int64_t n_rows, bool has_bias) {
  const auto row_bytes = static_cast<int64_t>(p.bytes.size() / p.bias.size());
  std::vector<float> y;
  for (size_t rank = 0; rank < experts.size(); ++rank) {
    for (int64_t r = 0; r < n_rows; ++r) {
      const int64_t row = experts[rank] * n_rows + r;
      y.push_back(ops::linear_ref(format, p.bytes.data() + row * row_bytes, x,
                                  x.n_rows == 1 ? 0 : static_cast<int64_t>(rank),
                                  has_bias ? &p.bias[static_cast<size_t>(row)] : nullptr));
    }
  }
  return y;
}

void check_token(const quant::Format& of_gate, const quant::Format& of_down, const TokenShape& s, int planes,
                 ops::ActivationFunction activation, uint64_t seed) {
  const Product gate(of_gate, s.n_experts * s.width, s.d_in, seed),
      up(of_gate, s.n_experts * s.width, s.d_in, seed + 2), down(of_down, s.n_experts * s.d_out, s.width, seed + 4);
  test::Random random(seed + 6);
  std::vector<int64_t> experts;
  std::vector<float> routes = test::random_activations(s.n_used, seed + 7);
  for (int64_t rank = 0; rank < s.n_used; ++rank) {
    experts.push_back(random.below(static_cast<int>(s.n_experts)));
    routes.push_back(static_cast<float>(experts.back()));
  }
  const Row x(of_gate, planes, 1, test::random_activations(s.d_in, seed + 8));
  const std::vector<float> gates = products_of(of_gate, gate, experts, x.x, s.width, s.has_bias),
                           ups = products_of(of_gate, up, experts, x.x, s.width, s.has_bias);
  std::vector<float> middle(gates.size());
  for (size_t i = 0; i < middle.size(); ++i) middle[i] = ops::activate(activation, gates[i]) * ups[i];
  const Row rows(of_down, planes, s.n_used, middle);
  const std::vector<float> downs = products_of(of_down, down, experts, rows.x, s.d_out, s.has_bias);
  std::vector<float> expected(static_cast<size_t>(s.d_out));
  ops::expert_sum_ref(downs.data(), s.weighted ? routes.data() : nullptr, s.n_used, s.d_out, expected.data());

  const DeviceBuffer on_routes = upload(routes), on_x = upload(x.memory);
  const quant::Activations device_x = quant::carve(of_gate.activation, planes, 1, s.d_in, on_x.data());
  const auto task_of = [&](const Product& p, int64_t d_in, int64_t d_out, bool is_wide) {
    ExpertTask task;
    task.w = &p.w.matrix;
    task.bias = s.has_bias ? p.on_bias.as<float>() : nullptr;
    task.routes = on_routes.as<float>();
    task.n_pairs = s.n_used, task.d_in = d_in, task.d_out = d_out, task.rows_per_expert = d_out;
    task.n_used = static_cast<int32_t>(s.n_used);
    task.is_wide = is_wide;
    return task;
  };
  for (const bool observed : {false, true}) {
    const std::string what = std::string(tensor::traits(of_gate.dtype).name) + ", " +
                             std::string(tensor::traits(of_down.dtype).name) + ", planes " + std::to_string(planes) +
                             (observed ? ", observed" : "");
    const DeviceBuffer on_gates = poisoned(gates.size()), on_ups = poisoned(ups.size()),
                       on_middle = poisoned(middle.size()), on_downs = poisoned(downs.size()),
                       on_y = poisoned(expected.size());
    ExpertGateTask first{task_of(gate, s.d_in, s.width, false), task_of(up, s.d_in, s.width, false), activation,
                         on_middle.as<float>()};
    ExpertSumTask second{task_of(down, s.width, s.d_out, true), s.weighted ? on_routes.as<float>() : nullptr,
                         on_y.as<float>()};
    second.down.x = on_middle.as<float>();
    second.down.routes_are_settled = true;
    if (observed)
      first.gate.y = on_gates.as<float>(), first.up.y = on_ups.as<float>(), second.down.y = on_downs.as<float>();
    expert_token_gate(first, device_x, Queue());
    expert_token_sum(second, planes, Queue());
    cuda::check(cudaDeviceSynchronize(), "running a token's experts");
    EXPECT_TRUE(same_floats(download<float>(on_middle.data(), middle.size()), middle)) << what;
    EXPECT_TRUE(same_floats(download<float>(on_y.data(), expected.size()), expected)) << what;
    if (!observed) continue;
    EXPECT_TRUE(same_floats(download<float>(on_gates.data(), gates.size()), gates)) << what;
    EXPECT_TRUE(same_floats(download<float>(on_ups.data(), ups.size()), ups)) << what;
    EXPECT_TRUE(same_floats(download<float>(on_downs.data(), downs.size()), downs)) << what;
  }
}

TEST(CudaExpertToken, HasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 40;
  for (const tensor::DType gate : {tensor::DType::Q4_K, tensor::DType::Q5_K, tensor::DType::Q6_K}) {
    for (const tensor::DType down : {tensor::DType::Q4_K, tensor::DType::Q5_K, tensor::DType::Q6_K}) {
      const quant::Format &of_gate = *quant::find_format(gate), &of_down = *quant::find_format(down);
      for (const int planes : {1, 2}) {
        for (const TokenShape& s :
             {TokenShape{9, 8, 2048, 768, 150, false, true}, TokenShape{5, 4, 512, 1024, 2200, true, true},
              TokenShape{3, 2, 256, 512, 33, true, false}, TokenShape{2, 1, 2304, 256, 17, false, true}}) {
          const LinearMatrix of_1{gate, s.n_experts * s.width, true}, of_2{down, s.n_experts * s.d_out, true};
          ASSERT_TRUE(find_expert_token_row({of_1, of_1, of_2, of_gate.activation, s.n_used, s.d_in, s.width}));
          for (const auto activation : {ops::ActivationFunction::silu, ops::ActivationFunction::gelu_tanh})
            check_token(of_gate, of_down, s, planes, activation, seed += 20);
          if (HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace assay::backend::cuda
