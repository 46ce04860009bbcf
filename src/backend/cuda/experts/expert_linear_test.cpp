// Experts' products of every format against the reference, by bits: every kernel that serves the format, wide and
// narrow x, a part of an expert's rows, many tokens of which one expert has all and another none.
#include "backend/cuda/experts/expert_linear.h"

#include <algorithm>
#include <set>
#include <string>

#include "backend/cuda/experts/expert_groups.h"
#include "backend/cuda/kernels/expert_table.h"
#include "backend/cuda/linear/matrix_test.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/runtime/this_card.h"
#include "ops/linear/linear.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

struct ExpertShape {
  int64_t n_experts, n_used, n_tokens, d_in, d_out, rows_per_expert, first_row;
  bool wide;
  bool uneven = false;  // every token goes to expert 1, none to expert 0
};

std::vector<float> random_routes(const ExpertShape& s, uint64_t seed) {
  test::Random random(seed);
  std::vector<float> routes;
  for (int64_t t = 0; t < s.n_tokens; ++t) {
    std::vector<float> experts;
    if (s.uneven) experts.push_back(1.0f);
    while (static_cast<int64_t>(experts.size()) < s.n_used) {
      const auto e = static_cast<float>(random.below(static_cast<int>(s.n_experts)));
      if (s.uneven && e == 0.0f) continue;
      if (std::find(experts.begin(), experts.end(), e) == experts.end()) experts.push_back(e);
    }
    routes.insert(routes.end(), static_cast<size_t>(s.n_used), 0.25f);
    routes.insert(routes.end(), experts.begin(), experts.end());
  }
  return routes;
}

// The task beside another one in the same kernel, whose outputs nobody looks at.
void run_as_one_of_two(const ExpertTask& task, bool first, size_t n_outputs, const quant::Activations& x) {
  const DeviceBuffer other = poisoned(n_outputs);
  ExpertTask beside = task;
  beside.y = other.as<float>();
  beside.bias = nullptr;
  const ExpertTask both[] = {first ? task : beside, first ? beside : task};
  expert_linear_gemv(both, x, Queue());
  cuda::check(cudaDeviceSynchronize(), "running two products by experts");
}

void check_experts(const quant::Format& format, const ExpertShape& s, int planes, uint64_t seed) {
  const int64_t n_rows = s.n_experts * s.rows_per_expert, n_x = s.n_tokens * (s.wide ? s.n_used : 1),
                n_pairs = s.n_tokens * s.n_used;
  const std::vector<std::byte> bytes = test::random_weights(format, n_rows * s.d_in, seed);
  const std::vector<float> x = test::random_activations(n_x * s.d_in, seed + 1),
                           bias = test::random_activations(n_rows, seed + 2);
  const std::vector<float> routes = random_routes(s, seed + 3);
  const bool of_floats = format.activation == quant::Activation::f32;
  std::vector<std::byte> memory;
  quant::Activations host;
  if (!of_floats) {
    memory.resize(quant::activations_bytes(format.activation, planes, n_x, s.d_in));
    host = quant::carve(format.activation, planes, n_x, s.d_in, memory.data());
    for (int64_t i = 0; i < n_x; ++i) quant::quantise_row_ref(x.data() + i * s.d_in, host, i);
  }
  const int64_t row_bytes =
      s.d_in / tensor::traits(format.dtype).block_elements * tensor::traits(format.dtype).block_bytes;
  std::vector<float> expected;
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    const auto expert =
        static_cast<int64_t>(routes[static_cast<size_t>(pair / s.n_used * 2 * s.n_used + s.n_used + pair % s.n_used)]);
    const int64_t x_row = s.wide ? pair : pair / s.n_used;
    for (int64_t r = 0; r < s.d_out; ++r) {
      const int64_t row = expert * s.rows_per_expert + s.first_row + r;
      const std::byte* weights = bytes.data() + row * row_bytes;
      const float* b = &bias[static_cast<size_t>(row)];
      expected.push_back(of_floats ? ops::linear_f32_ref(format, weights, x.data() + x_row * s.d_in, s.d_in, b)
                                   : ops::linear_ref(format, weights, host, x_row, b));
    }
  }
  const Uploaded w = lay(format.dtype, n_rows, s.d_in, bytes, false);
  const DeviceBuffer on_x = upload(x), on_bias = upload(bias), on_routes = upload(routes);
  ExpertTask task;
  task.w = &w.matrix;
  task.bias = on_bias.as<float>();
  task.routes = on_routes.as<float>();
  task.x = on_x.as<float>();
  task.n_pairs = n_pairs, task.d_in = s.d_in, task.d_out = s.d_out;
  task.rows_per_expert = s.rows_per_expert, task.first_row = s.first_row;
  task.n_used = static_cast<int32_t>(s.n_used);
  task.is_wide = s.wide;
  const auto check = [&](const std::string& what, auto&& start) {
    const DeviceBuffer y = poisoned(expected.size());
    task.y = y.as<float>();
    start();
    EXPECT_TRUE(same_floats(download<float>(y.data(), expected.size()), expected))
        << tensor::traits(format.dtype).name << ", " << what << ", planes " << planes;
  };
  if (of_floats) {
    check("floats", [&] {
      for (int64_t e = 0; e < s.n_experts; ++e) {  // one at a time, as where they are decoded
        const auto* rows = static_cast<const uint8_t*>(w.matrix.parts.base[0]) + e * s.rows_per_expert * row_bytes;
        expert_linear_float(task, format.dtype, rows, e, 1, Queue());
      }
    });
    return;
  }
  const DeviceBuffer on_memory = upload(memory);
  const quant::Activations device =  // the ranks' rows as one, as a gate leaves them
      quant::carve(format.activation, planes, s.n_tokens, n_x / s.n_tokens * s.d_in, on_memory.data());
  const Card card = this_card();
  const HopperMemory hopper(true);
  const ExpertNeed need{s.n_experts, n_pairs, format.activation, s.d_in};
  const ExpertMemory by_expert(std::span(&need, 1), planes, hopper.view());
  const bool is_cut = part_bytes(format.dtype, false).n > 1;
  const ExpertProduct product{{format.dtype, n_rows, is_cut}, format.activation, planes, s.n_experts, s.n_used};
  std::set<std::string_view> ran;
  for (const ExpertRow& row : expert_table()) {
    if (!row.takes(product, n_pairs, card)) continue;
    ran.insert(row.name);
    const std::string name(row.name);
    if (row.kernel == ExpertKernel::any_format) check(name, [&] { expert_linear_any(task, device, Queue()); });
    if (row.kernel == ExpertKernel::vectors) {
      for (const bool settled : {false, true}) {
        task.routes_are_settled = settled;
        check(name, [&] { expert_linear_gemv({&task, 1}, device, Queue()); });
      }
      for (const bool first : {false, true})
        check(name + ", one of two", [&] { run_as_one_of_two(task, first, expected.size(), device); });
    }
    for (const bool made : {false, true}) {  // twice: the second product finds the order and the activations
      if (row.kernel != ExpertKernel::group_tiles) continue;
      check(name, [&] {
        expert_linear_groups(task, device, row.columns, by_expert.view(), {made, made}, hopper.view(), Queue());
      });
    }
  }
  EXPECT_TRUE(ran.contains("experts of any format"));
  EXPECT_EQ(ran.contains("expert vectors"), is_cut);
  EXPECT_EQ(ran.contains("expert group tiles"), is_cut && card.has_groups() && n_pairs >= 2 * s.n_experts);
}

TEST(CudaExpertLinear, HasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 900;
  for (const quant::Format& format : quant::all_formats()) {
    const int64_t block = format.activation == quant::Activation::a256  ? 256
                          : format.activation == quant::Activation::f32 ? 8
                                                                        : 32;
    for (const int planes : {1, 2}) {
      for (const ExpertShape& s :
           {ExpertShape{7, 3, 1, 3 * block, 33, 33, 0, false}, ExpertShape{5, 2, 9, 9 * block, 19, 40, 21, true},
            ExpertShape{9, 4, 1, 4 * block, 2100, 2100, 0, true}, ExpertShape{4, 2, 3, 2 * block, 9, 9, 0, true},
            ExpertShape{4, 3, 2, 1 * block, 40, 90, 50, false}, ExpertShape{3, 2, 1, 5 * block, 70, 70, 0, true}}) {
        check_experts(format, s, planes, ++seed * 10);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CudaExpertLinear, HasTheReferencesBitsOfManyTokens) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 70000;
  for (const quant::Format& format : quant::all_formats()) {
    if (part_bytes(format.dtype, false).n < 2) continue;
    const int64_t block = format.activation == quant::Activation::a256 ? 256 : 32;
    for (const int planes : {1, 2}) {
      for (const ExpertShape& s :
           {ExpertShape{6, 2, 100, 3 * block, 40, 60, 11, false, true},
            ExpertShape{6, 3, 40, 8 * block, 150, 150, 0, true},
            ExpertShape{3, 1, 200, 8 * block, 33, 33, 0, false, true},
            ExpertShape{3, 1, 200, 11 * block, 20, 20, 0, true}, ExpertShape{5, 2, 260, 6 * block, 30, 30, 0, false},
            ExpertShape{2, 1, 150, 1 * block, 17, 17, 0, false}, ExpertShape{4, 1, 250, 5 * block, 24, 24, 0, false},
            ExpertShape{4, 1, 300, 7 * block, 20, 20, 0, false}, ExpertShape{130, 2, 200, 2 * block, 8, 8, 0, false}}) {
        check_experts(format, s, planes, ++seed * 10);
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace assay::backend::cuda
