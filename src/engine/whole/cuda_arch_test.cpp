// Every family's tiny random model on the GPU with the CPU's bits: logits and cache, in one batch, cut, and token by
// token; what this device has no kernel for runs as the op's reference on the host. And ops that no backend knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "assay/devices.h"
#include "assay/embed.h"
#include "assay/error.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/cuda/cuda.h"
#include "engine/executors/replay_executor.h"
#include "engine/model_state.h"
#include "ops/plan/op_values.h"
#include "support/engine/toy_op.h"
#include "support/goldens.h"
#include "support/shared_data.h"
#include "support/tiny_plan.h"

namespace assay::cuda_arch_test {
namespace {

std::vector<std::string> families() {
  std::vector<std::string> names;
  const std::filesystem::path folder = test::shared("goldens/arch");
  if (!std::filesystem::is_directory(folder)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Result {
  std::vector<uint32_t> logits;  // bits, of all tokens in order
  std::vector<std::byte> cache;
};

// Sequence 1 of two; the other has a few tokens too, in the batches of several.
Result run_in_chunks(ops::Executor& executor, std::span<const int32_t> ids, const std::vector<int64_t>& chunks,
                     bool alone, ops::OpObserver* observer = nullptr) {
  Result result;
  int64_t done = 0;
  for (size_t i = 0; done < static_cast<int64_t>(ids.size()); ++i) {
    const int64_t n = std::min(chunks[i % chunks.size()], static_cast<int64_t>(ids.size()) - done);
    std::vector<int32_t> tokens, positions, sequences;
    std::vector<uint8_t> outputs;
    if (!alone && n > 2) {  // a neighbour that decodes
      tokens.push_back(ids[i]), positions.push_back(static_cast<int32_t>(executor.n_positions(0))),
          sequences.push_back(0), outputs.push_back(0);
    }
    for (int64_t t = 0; t < n; ++t) {
      tokens.push_back(ids[static_cast<size_t>(done + t)]), positions.push_back(static_cast<int32_t>(done + t)),
          sequences.push_back(1), outputs.push_back(1);
    }
    executor.run({tokens, positions, sequences, outputs, {.observer = observer}});
    for (int64_t t = 0; t < n; ++t) {
      for (const float x : executor.logits(t)) result.logits.push_back(std::bit_cast<uint32_t>(x));
    }
    done += n;
  }
  executor.visit_cache(
      1, [&](std::span<const std::byte> row) { result.cache.insert(result.cache.end(), row.begin(), row.end()); });
  return result;
}

// What an observer saw of one batch, op by op.
class Keeper final : public ops::OpObserver {
 public:
  bool wants(const ops::Op&) override { return true; }
  void on_op(const ops::Op& op, int64_t, int64_t, std::span<const double> values) override {
    seen.emplace_back(op.name + " (" + op.record.kind() + ")", std::vector<double>(values.begin(), values.end()));
  }
  std::vector<std::pair<std::string, std::vector<double>>> seen;
};

std::string first_difference(ops::Executor& cpu, ops::Executor& gpu, std::span<const int32_t> ids) {
  Keeper on_cpu, on_gpu;
  for (ops::Executor* executor : {&cpu, &gpu}) {
    executor->truncate(1, 0);
    run_in_chunks(*executor, ids, {64}, true, executor == &cpu ? &on_cpu : &on_gpu);
  }
  const auto same = [](double a, double b) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (a != a && b != b);
  };
  for (const auto& here : on_cpu.seen) {
    const auto& op = here.first;
    const auto& values = here.second;
    const auto found =
        std::find_if(on_gpu.seen.begin(), on_gpu.seen.end(), [&op](const auto& other) { return other.first == op; });
    if (found == on_gpu.seen.end()) return op + " was not seen";
    if (found->second.size() != values.size()) return op + " has another size";
    if (!std::equal(values.begin(), values.end(), found->second.begin(), same)) return op;
  }
  return "none, observed";
}

ops::ExecutorOptions options_of(ops::CacheType cache, bool as_f32) {
  ops::ExecutorOptions options;
  options.n_ctx = 64;
  options.n_batch_max = 65;
  options.n_outputs_max = 65;
  options.n_sequences = 2;
  options.cache_k = options.cache_v = cache;
  options.checkpoint_interval = 8;
  options.weights_as_f32 = as_f32;
  return options;
}

void expect_the_cpus_bits(const ops::Plan& plan, std::span<const int32_t> ids, const ops::ExecutorOptions& options,
                          const std::string& what, bool may_borrow = false) {
  base::ThreadPool pool(2);
  const auto cpu = engine::with_replay(backend::cpu::make_cpu_executor(plan, options, {}, pool), plan, options);
  const Result expected = run_in_chunks(*cpu, ids, {64}, true);
  const auto gpu = engine::with_replay(backend::cuda::make_cuda_executor(plan, options), plan, options);
  for (size_t i = 0; !may_borrow && !plan.states.empty() && i < plan.ops.size(); ++i)
    EXPECT_FALSE(gpu->kernels_of(static_cast<int32_t>(i)).at(0).borrowed) << what << ": " << plan.ops[i].name;
  using Chunks = std::vector<int64_t>;
  for (const Chunks& chunks : plan.causal ? std::vector<Chunks>{{64}, {13, 1, 5}, {1}} : std::vector<Chunks>{{64}}) {
    gpu->truncate(0, 0);
    gpu->truncate(1, 0);
    const Result found = run_in_chunks(*gpu, ids, chunks, !plan.causal || chunks.size() == 1);
    EXPECT_EQ(found.cache.size(), expected.cache.size()) << what;
    const bool same = found.logits == expected.logits && found.cache == expected.cache;
    EXPECT_TRUE(same) << what << ", chunks of " << chunks[0] << (found.cache == expected.cache ? "" : ", cache")
                      << "; first op that differs: " << first_difference(*cpu, *gpu, ids);
    if (!same) return;
  }
  if (!plan.causal) return;  // a sequence that is cut, and goes on
  gpu->truncate(1, static_cast<int64_t>(ids.size()) - 3);
  const int32_t first = static_cast<int32_t>(gpu->n_positions(1));
  std::vector<int32_t> positions(3), sequences(3, 1);
  std::iota(positions.begin(), positions.end(), first);
  gpu->run({ids.last(3), positions, sequences, std::vector<uint8_t>(3, 1)});
  const size_t width = static_cast<size_t>(plan.output_width()), at = expected.logits.size() - width;
  for (size_t j = 0; j < width; ++j)
    ASSERT_EQ(std::bit_cast<uint32_t>(gpu->logits(2)[j]), expected.logits[at + j]) << what << ", after a cut";
}

#define ASSAY_REQUIRE_A_GPU()                        \
  do {                                               \
    const std::string none = list_devices().no_cuda; \
    if (!none.empty()) GTEST_SKIP() << none;         \
  } while (false)

class CudaArch : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaArch, HasTheCpusBits) {
  ASSAY_REQUIRE_A_GPU();
  const std::filesystem::path path = test::shared("goldens/arch/" + GetParam() + ".gguf");
  std::shared_ptr<const Model> model;
  try {
    model = Model::load(path.string(), {.tokenizer = false});
  } catch (const Error& error) {
    if (error.code == Errc::unsupported) GTEST_SKIP() << error.what();  // a family that this build refuses
    throw;
  }
  const std::vector<int32_t> ids =
      test::to_ids(test::read_json(test::shared("goldens/arch/" + GetParam() + ".json")).at("ids"));
  const ops::Plan& plan = model->state().built.plan;
  for (const bool as_f32 : {false, true}) {
    const std::string what = as_f32 ? "mode f32, cache f32" : "mode exact, cache f16";
    expect_the_cpus_bits(plan, std::span(ids).first(std::min<size_t>(ids.size(), 64)),
                         options_of(as_f32 ? ops::CacheType::f32 : ops::CacheType::f16, as_f32), what);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CudaArch, ::testing::ValuesIn(families()), [](const auto& parameters) {
  std::string text = parameters.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaArch);

// Embeddings of several texts together, pooled.
TEST(CudaEmbeddings, HaveTheCpusBits) {
  ASSAY_REQUIRE_A_GPU();
  for (const char* name : {"bert", "modernbert", "qwen3-embed", "gemma-embed"}) {
    const std::filesystem::path path = test::shared(std::string("goldens/arch/") + name + ".gguf");
    ASSAY_REQUIRE_FILE(path.string());
    const auto model = Model::load(path.string(), {.tokenizer = false});
    std::vector<std::vector<std::vector<double>>> found;
    for (const Backend backend : {Backend::cpu, Backend::cuda}) {
      EmbedOptions options;
      options.context.n_ctx = 32;
      options.context.n_threads = 1;
      options.context.backend = backend;
      Embedder embedder(model, options);
      found.push_back(embedder.embed(
          std::vector<std::vector<TokenId>>{{1, 2, 3, 4, 5}, {7}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 10, 11, 12}}));
    }
    EXPECT_EQ(found[0], found[1]) << name;
  }
}

TEST(CudaBorrowing, AnOpThatNoBackendKnowsRunsOnTheHost) {
  ASSAY_REQUIRE_A_GPU();
  test::TinyPlan tiny(test::TinyShape{});
  const int32_t at = test::add_toy(tiny.plan);
  const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false);
  const auto gpu = backend::cuda::make_cuda_executor(tiny.plan, options);
  const auto uses = gpu->kernels_of(at), of_gate = gpu->kernels_of(at - 1);
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_TRUE(uses[0].borrowed);
  EXPECT_EQ(uses[0].name, "reference");
  EXPECT_FALSE(of_gate.at(0).borrowed);
  std::vector<int32_t> ids(40);
  std::iota(ids.begin(), ids.end(), 3);
  expect_the_cpus_bits(tiny.plan, ids, options, "with a toy op", true);
}

TEST(CudaBorrowing, AStateThatNoBackendKnowsStaysOnTheHost) {
  ASSAY_REQUIRE_A_GPU();
  test::TinyPlan tiny(test::TinyShape{});
  const int32_t at = test::add_toy_state(tiny.plan);
  const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false);
  EXPECT_TRUE(backend::cuda::make_cuda_executor(tiny.plan, options)->kernels_of(at).at(0).borrowed);
  std::vector<int32_t> ids(40);
  std::iota(ids.begin(), ids.end(), 3);
  expect_the_cpus_bits(tiny.plan, ids, options, "with a toy state", true);
}

TEST(CudaBorrowing, AReaderOfTheCacheThatNoBackendKnowsRunsOnTheHost) {
  ASSAY_REQUIRE_A_GPU();
  test::TinyPlan tiny(test::TinyShape{});
  const int32_t at = test::add_toy_cached(tiny.plan);
  const ops::ExecutorOptions options = options_of(ops::CacheType::f16, false);
  EXPECT_TRUE(backend::cuda::make_cuda_executor(tiny.plan, options)->kernels_of(at).at(0).borrowed);
  std::vector<int32_t> ids(40);
  std::iota(ids.begin(), ids.end(), 3);
  expect_the_cpus_bits(tiny.plan, ids, options, "with a toy that reads the cache", true);
}

}  // namespace
}  // namespace assay::cuda_arch_test
