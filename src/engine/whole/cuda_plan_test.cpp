// The GPU's executor against the CPU's, op by op: every value that an observer sees has the same bits, fused or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "assay/devices.h"
#include "backend/cpu/runtime/cpu_executor.h"
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
  void on_op(const ops::Op& op, int64_t, int64_t, std::span<const double> values) override {
    seen.push_back({op.name, {values.begin(), values.end()}});
  }
  std::vector<Seen> seen;
};

// Chunks of 1, 5, 40, 17 and 3 tokens of sequence 1, each of whose last token gives logits; some of sequence 0 in
// between, a single one beside 17.
std::vector<Seen> run_all(ops::Executor& executor, bool observed, std::vector<std::vector<float>>& logits) {
  Keeper keeper;
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
    executor.run({tokens, positions, sequences, outputs, {.observer = observed ? &keeper : nullptr}});
    for (int i = 0; i < (n >= 4 ? 2 : 1); ++i)
      logits.emplace_back(executor.logits(i).begin(), executor.logits(i).end());
  }
  return keeper.seen;
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

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

bool same_logits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

class CudaPlan : public testing::TestWithParam<tensor::DType> {
 protected:
  void SetUp() override {
    const std::string none = list_devices().no_cuda;
    if (!none.empty()) GTEST_SKIP() << none;
  }
  static test::TinyShape shape(bool gemma) {
    test::TinyShape shape;
    shape.dtype = GetParam();
    shape.gemma = gemma;
    shape.d_model = 256;
    shape.d_ff = 512;
    shape.n_heads = 8;
    shape.window = 9;
    return shape;
  }
  static ops::ExecutorOptions options() {
    ops::ExecutorOptions options;
    options.n_ctx = 96;
    options.n_batch_max = 64;
    options.n_sequences = 2;
    return options;
  }
};

TEST_P(CudaPlan, EveryOpHasTheCpusBits) {
  base::ThreadPool pool(2);
  for (const bool gemma : {false, true}) {
    for (const bool as_f32 : {false, true}) {
      const test::TinyPlan tiny(shape(gemma));
      ops::ExecutorOptions options = CudaPlan::options();
      options.weights_as_f32 = as_f32;
      const std::string what =
          std::string(tensor::traits(GetParam()).name) + (gemma ? ", gemma" : ", llama") + (as_f32 ? ", f32" : "");
      const auto cpu = backend::cpu::make_cpu_executor(tiny.plan, options, {}, pool);
      const auto observed = backend::cuda::make_cuda_executor(tiny.plan, options),
                 alone = backend::cuda::make_cuda_executor(tiny.plan, options);
      std::vector<std::vector<float>> cpu_logits, observed_logits, alone_logits;
      const std::vector<Seen> expected = run_all(*cpu, true, cpu_logits);
      expect_same(run_all(*observed, true, observed_logits), expected, what);
      run_all(*alone, false, alone_logits);
      ASSERT_EQ(cpu_logits.size(), alone_logits.size());
      for (size_t i = 0; i < cpu_logits.size(); ++i) {
        EXPECT_TRUE(same_logits(observed_logits[i], cpu_logits[i])) << what << ": logits, observed";
        EXPECT_TRUE(same_logits(alone_logits[i], cpu_logits[i])) << what << ": logits, from graphs";
      }
    }
  }
}

// The best tokens of two sequences side by side, then of one, each begun before it is asked for: with the rows of the
// table that the ranking before has made, and with those of a format for which it makes none.
TEST_P(CudaPlan, RunAheadHasTheCpusBits) {
  base::ThreadPool pool(2);
  for (const bool gemma : {false, true}) {
    const test::TinyPlan tiny(shape(gemma));
    const auto cpu = backend::cpu::make_cpu_executor(tiny.plan, options(), {}, pool);
    const auto gpu = backend::cuda::make_cuda_executor(tiny.plan, options());
    ASSERT_TRUE(gpu->supports().n_ranked_max > 0 && gpu->supports().follows_best);
    std::vector<int32_t> tokens = {5, 9}, positions = {0, 0}, sequences = {0, 1};
    std::vector<uint8_t> outputs = {1, 1};
    for (int i = 0; i < 30; ++i) {
      if (i == 15) tokens.pop_back(), positions.pop_back(), sequences.pop_back(), outputs.pop_back();
      if (i == 20) tokens[0] = 3;  // hardly the best one
      cpu->run({tokens, positions, sequences, outputs});
      gpu->run({tokens, positions, sequences, outputs, {.n_ranked = 1, .follows_best = true}});
      for (size_t t = 0; t < tokens.size(); ++t) {
        const auto output = static_cast<int64_t>(t);
        const std::span<const float> expected = cpu->logits(output);
        const auto best = static_cast<int32_t>(std::max_element(expected.begin(), expected.end()) - expected.begin());
        SCOPED_TRACE(std::string(gemma ? "gemma" : "llama") + ", run " + std::to_string(i) + ", output " +
                     std::to_string(t));
        ASSERT_EQ(gpu->ranked(output).front().token, best);
        ASSERT_TRUE(i % 3 != 0 || same_logits(gpu->logits(output), expected));
        tokens[t] = best;
        ++positions[t];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaPlan,
                         testing::Values(tensor::DType::Q4_0, tensor::DType::Q4_K, tensor::DType::Q6_K,
                                         tensor::DType::F16, tensor::DType::IQ4_NL),
                         [](const auto& test) { return std::string(tensor::traits(test.param).name); });

}  // namespace
}  // namespace assay
