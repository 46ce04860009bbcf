// Whole models on a Vulkan device: the digests of all logits and of the cache equal the golden ones, which the CPU's
// kernels and references give. And ops that no backend knows.
#include <gtest/gtest.h>

#include "assay/devices.h"
#include "assay/error.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/vulkan/vulkan.h"
#include "support/engine/executor_runs.h"
#include "support/engine/toy_op.h"
#include "support/invariance.h"
#include "support/rounds.h"
#include "support/tiny_plan.h"

namespace assay {
namespace {

#define ASSAY_REQUIRE_VULKAN()                         \
  do {                                                 \
    const std::string none = list_devices().no_vulkan; \
    if (!none.empty()) GTEST_SKIP() << none;           \
  } while (false)

// Named, so that software serves as well.
test::Way vulkan_way(int64_t n_ubatch, std::vector<size_t> pieces = {}, int64_t n_gpu_layers = -1) {
  return {2, n_ubatch, Kernels::best, std::move(pieces), Backend::vulkan, n_gpu_layers, {0}};
}

void check(const test::GoldenModel& golden, const std::vector<test::Setting>& settings,
           const std::vector<test::Way>& ways) {
  const test::DigestBook book;
  int64_t n_runs = 0;
  for (const test::Setting& setting : settings) test::expect_invariant(golden, setting, ways, book, n_runs);
  std::printf("%s by Vulkan: %lld runs, the golden digests in %zu settings\n", golden.name.c_str(),
              static_cast<long long>(n_runs), settings.size());
}

// Formats of each kind, and one without a kernel; with ASSAY_EXHAUSTIVE all of them. Every run opens the device and
// compiles its shaders.
TEST(VulkanGolden, FormatsHaveTheGoldenDigests) {
  ASSAY_REQUIRE_VULKAN();
  using tensor::DType;
  const std::vector<DType> some = {DType::F16, DType::Q4_0, DType::Q5_1, DType::Q5_K, DType::Q6_K, DType::IQ4_XS};
  for (const DType dtype : test::is_exhaustive() ? test::all_dtypes() : some) {
    check(test::golden_tiny_model(dtype), {test::Setting{}}, {vulkan_way(64)});
  }
}

TEST(VulkanGolden, SettingsHaveTheGoldenDigests) {
  ASSAY_REQUIRE_VULKAN();
  const std::vector<test::Setting> some = {
      {Numerics::exact, 15, KvType::f16}, {Numerics::exact, 8, KvType::q8_0}, {Numerics::f32, 15, KvType::f32}};
  check(test::golden_tiny_model(tensor::DType::Q4_K), test::is_exhaustive() ? test::all_settings() : some,
        {vulkan_way(64)});
}

TEST(VulkanGolden, WhereAPromptIsCutChangesNothing) {
  ASSAY_REQUIRE_VULKAN();
  const test::GoldenModel golden = test::golden_tiny_model(tensor::DType::Q8_0);
  check(golden, {test::Setting{}},
        {vulkan_way(1), vulkan_way(64, test::random_pieces(golden.ids.size(), 1)), vulkan_way(64, {}, 1)});
}

TEST(VulkanBorrowing, AnOpThatNoBackendKnowsRunsOnTheHost) {
  ASSAY_REQUIRE_VULKAN();
  const ops::ExecutorOptions options = test::options_of(ops::CacheType::f16, false, 2);
  for (const test::ToyKind kind : test::kToyKinds) {
    test::TinyPlan tiny(test::TinyShape{});
    const int32_t at = test::add_toy(tiny.plan, kind);
    base::ThreadPool pool(1);
    std::string note;
    const auto gpu = backend::vulkan::make_vulkan_executor(tiny.plan, options, 0, pool, note);
    EXPECT_TRUE(gpu->kernels_of(at).at(0).borrowed);
    EXPECT_FALSE(gpu->kernels_of(at - 1).at(0).borrowed);
    const auto cpu = backend::cpu::make_cpu_executor(tiny.plan, options, {}, pool);
    EXPECT_EQ(test::run_all(*gpu, true).logits, test::run_all(*cpu, true).logits) << name(kind);
  }
}

// What a loading program says: products in a format without a kernel, and nothing where all have one.
TEST(VulkanBorrowing, AContextNamesWhatIsBorrowed) {
  ASSAY_REQUIRE_VULKAN();
  const auto borrowed = [](tensor::DType dtype) {
    ContextOptions options;
    options.backend = Backend::vulkan;
    options.devices = {0};
    options.n_ctx = 32;
    return Context(test::golden_tiny_model(dtype).model, options).borrowed();
  };
  EXPECT_EQ(borrowed(tensor::DType::Q4_K), std::vector<std::string>());
  EXPECT_EQ(borrowed(tensor::DType::IQ4_XS), (std::vector<std::string>{"embed", "linear"}));
}

TEST(VulkanGolden, RealModels) {
  ASSAY_REQUIRE_VULKAN();
  if (!test::is_exhaustive()) GTEST_SKIP() << "takes minutes on a processor: with ASSAY_EXHAUSTIVE";
  int n = 0;
  for (const auto& path : {test::smollm2(), test::gemma3()}) {
    if (!std::filesystem::exists(path)) continue;
    check(test::golden_real_model(path), {test::Setting{}}, {vulkan_way(64)});
    ++n;
  }
  if (n == 0) GTEST_SKIP() << "no real model is here (scripts/fetch-models)";
}

TEST(VulkanGolden, WhatItIsNotIsSaid) {
  ASSAY_REQUIRE_VULKAN();
  const test::GoldenModel golden = test::golden_tiny_model(tensor::DType::Q4_0);
  ContextOptions options;
  options.backend = Backend::vulkan;
  options.devices = {99};
  EXPECT_THROW(Context(golden.model, options), Error);
  options.devices = {0};
  options.numerics = Numerics::fast;
  EXPECT_THROW(Context(golden.model, options), Error);
}

}  // namespace
}  // namespace assay
