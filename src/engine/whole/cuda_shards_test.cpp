// Shards of plans on GPUs of their own against one executor of the CPU, token by token: widths in which products are
// summed along their rows by chunks (ops::Linear::columns), and others; norms before and after products; every format
// that has such kernels, and two that have none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "assay/error.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/cuda/cuda.h"
#include "engine/executors/shard_executor.h"
#include "ops/linear/linear.h"
#include "support/engine/cuda_gpus.h"
#include "support/engine/executor_runs.h"
#include "support/random_numbers.h"
#include "support/tiny_plan.h"

namespace assay::engine {
namespace {

struct Bits {
  std::vector<float> logits;
  std::vector<std::byte> cache;
  bool operator==(const Bits& other) const {
    const size_t n = logits.size();
    return n == other.logits.size() && std::memcmp(logits.data(), other.logits.data(), n * sizeof(float)) == 0 &&
           cache == other.cache;
  }
};

// A chunk, then single tokens, of which most are the best ones; some are taken back, some come without logits, some are
// observed. A run that fails is run again.
Bits run(ops::Executor& executor) {
  Bits bits;
  test::Random random(5);
  test::Seen seen;
  test::Keeper observer(seen);
  const bool is_ranked = executor.supports().n_ranked_max > 0;
  int32_t best = ops::kNone;
  for (int i = 0; i < 24; ++i) {
    const int n = i == 0 ? 5 : i == 9 ? 3 : 1;
    if (i == 14) executor.truncate(0, 6);
    std::vector<int32_t> tokens, positions, sequences(static_cast<size_t>(n), 0);
    std::vector<uint8_t> outputs(static_cast<size_t>(n), 0);
    for (int k = 0; k < n; ++k) {
      tokens.push_back(random.below(64));
      positions.push_back(static_cast<int32_t>(executor.n_positions(0)) + k);
    }
    outputs.back() = i % 5 == 3 ? 0 : 1;
    if (n == 1 && i % 4 != 1 && best != ops::kNone) tokens.back() = best;
    const ops::Batch batch{tokens,
                           positions,
                           sequences,
                           outputs,
                           {.n_ranked = 1, .follows_best = true, .observer = i % 8 == 7 ? &observer : nullptr}};
    try {
      executor.run(batch);
    } catch (const Error&) {
      executor.run(batch);
    }
    best = ops::kNone;
    if (outputs.back() == 0) continue;
    const std::span<const float> logits = executor.logits(0);
    best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    EXPECT_TRUE(!is_ranked || executor.ranked(0).front().token == best);
    bits.logits.insert(bits.logits.end(), logits.begin(), logits.end());
  }
  executor.visit_cache(
      0, [&](std::span<const std::byte> bytes) { bits.cache.insert(bits.cache.end(), bytes.begin(), bytes.end()); });
  return bits;
}

// On as many GPUs; the last shard fails once where it is told to.
Bits run_shards(const ops::Plan& plan, const ops::ExecutorOptions& options, int n, bool fails) {
  std::vector<int> devices(static_cast<size_t>(n));
  std::iota(devices.begin(), devices.end(), 0);
  std::shared_ptr<backend::cuda::Peers> peers;
  const auto make = [&](const ops::Plan& shard, int i, base::Barrier& barrier) -> std::unique_ptr<ops::Executor> {
    if (peers == nullptr) peers = backend::cuda::make_peers(devices, barrier);
    auto executor = backend::cuda::make_cuda_executor(shard, options, devices[static_cast<size_t>(i)], {peers, i});
    if (fails && i + 1 == n) return std::make_unique<test::Failing>(std::move(executor), 7);
    return executor;
  };
  return run(*make_shard_executor(plan, options, n, make));
}

TEST(CudaPlan, HasTheBitsOfOneExecutorInShards) {
  const int n_devices = test::n_cuda_gpus();
  if (n_devices < 2) GTEST_SKIP() << "needs 2 GPUs, found " << n_devices;
  using tensor::DType;
  base::ThreadPool pool(1);
  const test::TinyShape wide{
      .d_model = 1024, .d_ff = 2560, .n_layers = 3, .n_heads = 8, .n_kv_heads = 4, .head_dim = 128};
  for (const DType dtype :
       {DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::Q4_0, DType::Q4_1, DType::Q8_0, DType::IQ4_XS, DType::F16}) {
    for (const int variant : {0, 1, 2}) {
      test::TinyShape shape = wide;
      shape.dtype = dtype;
      shape.gemma = variant == 1;
      if (variant == 2) shape.d_ff = 5632, shape.n_heads = 16, shape.head_dim = 64;  // 22 superblocks
      const test::TinyPlan tiny(shape);
      ops::ExecutorOptions options;
      options.n_ctx = 64;
      options.n_batch_max = 16;
      options.planes = variant == 2 ? 1 : 2;
      const Bits expected =
          run(*backend::cpu::make_cpu_executor(tiny.plan, options, {backend::cpu::best_kernel_set()}, pool));
      for (const int n : {2, 4}) {
        if (n > n_devices) continue;
        const bool fails = variant == 1;
        EXPECT_TRUE(run_shards(tiny.plan, options, n, fails) == expected)
            << tensor::traits(dtype).name << ", shape " << variant << ", " << n << " shards";
      }
    }
  }
}

}  // namespace
}  // namespace assay::engine
