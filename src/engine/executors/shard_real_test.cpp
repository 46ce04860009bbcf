// Both real models on 2 and 4 executors side by side: logits and cache have the bits of one. SmolLM2 has 9 heads on 3
// KV heads, which 2 shards divide unevenly and 4 do not; Gemma 3 has one KV head, which all shards have.
#include <gtest/gtest.h>

#include "backend/cpu/runtime/cpu_executor.h"
#include "engine/model_state.h"
#include "support/engine/cpu_shards.h"
#include "support/engine/executor_runs.h"
#include "support/shared_data.h"

namespace assay::engine {
namespace {

using test::CpuShards, test::options_of, test::run_all, test::Seen;

void expect_same_on_real(const std::filesystem::path& path) {
  ASSAY_REQUIRE_FILE(path);
  base::ThreadPool pool(2);
  const auto best = backend::cpu::best_kernel_set();
  const auto model = Model::load(path.string(), {.tokenizer = false});
  const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false, 2);
  const ops::Plan& plan = model->state().built.plan;
  const Seen expected = run_all(*backend::cpu::make_cpu_executor(plan, options, {best}, pool), false);
  for (const int n : {2, 4}) {
    CpuShards shards(plan, options, n, best);
    EXPECT_TRUE(run_all(*shards, false) == expected) << n << " shards";
  }
}
TEST(ShardsOfRealModels, SmolLm2) { expect_same_on_real(test::smollm2()); }
TEST(ShardsOfRealModels, Gemma3) { expect_same_on_real(test::gemma3()); }

}  // namespace
}  // namespace assay::engine
