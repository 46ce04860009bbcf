// The GPU's executor against the CPU's, op by op: every value that an observer sees has the same bits, fused or not.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "assay/devices.h"
#include "backend/cpu/cpu_executor.h"
#include "backend/cuda/cuda.h"
#include "support/random_numbers.h"
#include "support/tiny_plan.h"

namespace assay {
namespace {

struct Seen {
  std::string op;
  std::vector<double> values;
};

class Keeper final : public ops::OpObserver {
 public:
  bool wants(const ops::Op&) override { return true; }
  void on_op(const ops::Op& op, int64_t, int64_t, std::span<const double> values) override { seen.push_back({op.name, {values.begin(), values.end()}}); }
  std::vector<Seen> seen;
};

// Chunks of 1, 5, 40, 17 and 3 tokens of sequence 1, each of whose last token gives logits; some of sequence 0 in between, a single one beside 17.
std::vector<Seen> run_all(ops::Executor& executor, bool observed, std::vector<std::vector<float>>& logits) {
  Keeper keeper;
  if (observed) executor.set_observer(&keeper);
  test::Random random(3);
  for (const int n : {1, 5, 40, 17, 3, 1, 1, 1}) {
    std::vector<int32_t> tokens, positions, sequences;
    std::vector<uint8_t> outputs;
    for (const int sequence : {0, 1}) {
      const int count = sequence == 1 ? n : n == 17 ? 1 : n / 4;
      for (int i = 0; i < count; ++i) {
        tokens.push_back(random.below(64));
        positions.push_back(static_cast<int32_t>(executor.n_positions(sequence)) + i);
        sequences.push_back(sequence);
        outputs.push_back(i + 1 == count ? 1 : 0);
      }
    }
    executor.run({tokens, positions, sequences, outputs});
    for (int i = 0; i < (n >= 4 ? 2 : 1); ++i) logits.emplace_back(executor.logits(i).begin(), executor.logits(i).end());
  }
  return keeper.seen;
}

bool same(double a, double b) { return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

void expect_same(std::vector<Seen> gpu, const std::vector<Seen>& cpu, const std::string& what) {
  ASSERT_EQ(gpu.size(), cpu.size()) << what;
  std::vector<bool> taken(gpu.size());
  for (const Seen& expected : cpu) {  // the backends may run independent ops in another order
    bool found = false;
    for (size_t i = 0; i < gpu.size() && !found; ++i) {
      if (taken[i] || gpu[i].op != expected.op || gpu[i].values.size() != expected.values.size()) continue;
      found = std::equal(gpu[i].values.begin(), gpu[i].values.end(), expected.values.begin(), same);
      taken[i] = found;
    }
    ASSERT_TRUE(found) << what << ": " << expected.op << " has other values";
  }
}

class CudaPlan : public testing::TestWithParam<tensor::DType> {};

TEST_P(CudaPlan, EveryOpHasTheCpusBits) {
  const std::string none = list_devices().no_cuda;
  if (!none.empty()) GTEST_SKIP() << none;
  base::ThreadPool pool(2);
  for (const bool gemma : {false, true}) {
    for (const bool as_f32 : {false, true}) {
      test::TinyShape shape;
      shape.dtype = GetParam();
      shape.gemma = gemma;
      shape.d_model = 256;
      shape.d_ff = 512;
      shape.n_heads = 8;
      shape.window = 9;
      const test::TinyPlan tiny(shape);
      ops::ExecutorOptions options;
      options.n_ctx = 96;
      options.n_batch_max = 64;
      options.n_sequences = 2;
      options.weights_as_f32 = as_f32;
      const std::string what = std::string(tensor::traits(GetParam()).name) + (gemma ? ", gemma" : ", llama") + (as_f32 ? ", f32" : "");
      const auto cpu = backend::cpu::make_cpu_executor(tiny.plan, options, {}, pool);
      const auto observed = backend::cuda::make_cuda_executor(tiny.plan, options), alone = backend::cuda::make_cuda_executor(tiny.plan, options);
      std::vector<std::vector<float>> cpu_logits, observed_logits, alone_logits;
      const std::vector<Seen> expected = run_all(*cpu, true, cpu_logits);
      expect_same(run_all(*observed, true, observed_logits), expected, what);
      run_all(*alone, false, alone_logits);
      const auto same_logits = [](const auto& a, const auto& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end(), same); };
      ASSERT_EQ(cpu_logits.size(), alone_logits.size());
      for (size_t i = 0; i < cpu_logits.size(); ++i) {
        EXPECT_TRUE(same_logits(observed_logits[i], cpu_logits[i])) << what << ": logits, observed";
        EXPECT_TRUE(same_logits(alone_logits[i], cpu_logits[i])) << what << ": logits, from graphs";
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, CudaPlan,
                         testing::Values(tensor::DType::Q4_0, tensor::DType::Q4_K, tensor::DType::Q6_K, tensor::DType::F16, tensor::DType::IQ4_NL),
                         [](const auto& test) { return std::string(tensor::traits(test.param).name); });

}  // namespace
}  // namespace assay
