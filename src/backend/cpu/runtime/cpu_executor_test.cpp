// The executor on small plans: its bits never depend on kernels, threads, chunks, neighbours or an observer, and a
// token takes no memory.
#include "backend/cpu/runtime/cpu_executor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "assay/error.h"
#include "backend/cpu/runtime/kv_cache.h"
#include "backend/cpu/sets/kernel_sets.h"
#include "support/count_allocations.h"
#include "support/tiny_plan.h"

namespace assay::backend::cpu {
namespace {

std::vector<int32_t> tokens(int64_t n, int64_t vocab_size, uint64_t seed = 1) {
  test::Random random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(random.below(static_cast<int>(vocab_size)));
  return ids;
}

struct Result {
  std::vector<uint32_t> logits;  // bits, of all tokens in order
  std::vector<std::byte> cache;
  friend bool operator==(const Result&, const Result&) = default;
};

std::vector<std::byte> cache_of(const ops::Executor& executor, int sequence = 0) {
  std::vector<std::byte> all;
  executor.visit_cache(sequence,
                       [&](std::span<const std::byte> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}

// Runs ids from where the sequence stands, all logits wanted.
void run(ops::Executor& executor, std::span<const int32_t> ids, std::vector<uint32_t>& logits, int sequence = 0,
         ops::OpObserver* observer = nullptr) {
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(executor.n_positions(sequence)));
  const std::vector<int32_t> sequences(ids.size(), sequence);
  const std::vector<uint8_t> outputs(ids.size(), 1);
  executor.run({ids, positions, sequences, outputs, {.observer = observer}});
  for (size_t i = 0; i < ids.size(); ++i) {
    for (const float x : executor.logits(static_cast<int64_t>(i))) logits.push_back(std::bit_cast<uint32_t>(x));
  }
}

struct Setting {
  Kernels kernels = Kernels::reference;
  int n_threads = 1;
  std::vector<int64_t> chunks;  // empty: all at once
};

ops::ExecutorOptions default_options() {
  ops::ExecutorOptions options;
  options.n_ctx = 400;
  options.n_batch_max = 300;
  options.n_outputs_max = 300;
  return options;
}

Result result_of(const ops::Plan& plan, const ops::ExecutorOptions& options, const Setting& setting,
                 const std::vector<int32_t>& ids) {
  base::ThreadPool pool(setting.n_threads);
  const auto executor = make_cpu_executor(plan, options, {setting.kernels}, pool);
  Result result;
  std::span<const int32_t> left = ids;
  for (size_t i = 0; !left.empty(); ++i) {
    const size_t n = setting.chunks.empty()
                         ? left.size()
                         : std::min(left.size(), static_cast<size_t>(setting.chunks[i % setting.chunks.size()]));
    run(*executor, left.first(n), result.logits);
    left = left.subspan(n);
  }
  result.cache = cache_of(*executor);
  return result;
}

std::vector<Kernels> all_sets() {
  std::vector<Kernels> sets = fast_kernel_sets();
  sets.insert(sets.begin(), Kernels::reference);
  return sets;
}

void expect_invariant(const test::TinyShape& shape, const ops::ExecutorOptions& options, int64_t n_tokens) {
  const test::TinyPlan tiny(shape);
  const auto ids = tokens(n_tokens, shape.vocab_size);
  const Result expected = result_of(tiny.plan, options, {}, ids);
  for (const uint32_t bits : expected.logits) ASSERT_TRUE(std::isfinite(std::bit_cast<float>(bits)));
  for (const Kernels set : all_sets()) {
    EXPECT_TRUE(result_of(tiny.plan, options, {set, 2, {}}, ids) == expected) << "kernels " << static_cast<int>(set);
    EXPECT_TRUE(result_of(tiny.plan, options, {set, 3, {5, 1, 1, 20}}, ids) == expected)
        << "chunks, kernels " << static_cast<int>(set);
  }
  EXPECT_TRUE(result_of(tiny.plan, options, {best_kernel_set(), 2, {1}}, ids) == expected) << "one by one";
}

TEST(CpuExecutor, BitsDoNotDependOnKernelsThreadsOrChunks) {
  for (const bool gemma : {false, true}) {
    for (const tensor::DType dtype : {tensor::DType::Q4_0, tensor::DType::Q4_K, tensor::DType::F16}) {
      test::TinyShape shape;
      shape.gemma = gemma;
      shape.dtype = dtype;
      shape.window = gemma ? 6 : 0;
      if (dtype == tensor::DType::Q4_K) shape.d_model = shape.d_ff = 256, shape.n_heads = 8;
      expect_invariant(shape, default_options(), 12);
    }
  }
}

TEST(CpuExecutor, BitsAcrossSegments) {
  test::TinyShape shape;
  shape.n_layers = 1;
  shape.n_kv_heads = 1;
  expect_invariant(shape, default_options(), 270);
}

TEST(CpuExecutor, BitsInEveryMode) {
  test::TinyShape shape;
  shape.n_layers = 1;
  for (const bool as_f32 : {false, true}) {
    for (const int planes : {1, 2}) {
      for (const ops::CacheType cache : {ops::CacheType::f32, ops::CacheType::q8_0}) {
        ops::ExecutorOptions options = default_options();
        options.weights_as_f32 = as_f32;
        options.planes = planes;
        options.cache_k = cache;
        options.cache_v = as_f32 ? cache : ops::CacheType::f16;
        expect_invariant(shape, options, 12);
      }
    }
  }
}

TEST(CpuExecutor, SequencesDoNotSeeEachOther) {
  const test::TinyShape shape;
  const test::TinyPlan tiny(shape);
  ops::ExecutorOptions options = default_options();
  const auto ids_a = tokens(9, shape.vocab_size, 1), ids_b = tokens(9, shape.vocab_size, 2);
  const Result a = result_of(tiny.plan, options, {best_kernel_set(), 1, {}}, ids_a),
               b = result_of(tiny.plan, options, {best_kernel_set(), 1, {}}, ids_b);
  options.n_sequences = 2;
  base::ThreadPool pool(2);
  const auto executor = make_cpu_executor(tiny.plan, options, {}, pool);
  std::vector<int32_t> ids, positions, sequences;
  for (int32_t t = 0; t < 9; ++t) {
    for (const int32_t sequence : {0, 1}) {
      ids.push_back((sequence == 0 ? ids_a : ids_b)[static_cast<size_t>(t)]);
      positions.push_back(t);
      sequences.push_back(sequence);
    }
  }
  const std::vector<uint8_t> outputs(ids.size(), 1);
  executor->run({ids, positions, sequences, outputs});
  std::vector<uint32_t> logits_a, logits_b;
  for (int64_t t = 0; t < 9; ++t) {
    for (const float x : executor->logits(2 * t)) logits_a.push_back(std::bit_cast<uint32_t>(x));
    for (const float x : executor->logits(2 * t + 1)) logits_b.push_back(std::bit_cast<uint32_t>(x));
  }
  EXPECT_EQ(logits_a, a.logits);
  EXPECT_EQ(logits_b, b.logits);
  EXPECT_EQ(cache_of(*executor, 0), a.cache);
  EXPECT_EQ(cache_of(*executor, 1), b.cache);
}

// Sequences that share pages, were cut inside a shared one, or came back from a copy elsewhere: the bits of one that
// was run alone.
TEST(CpuExecutor, ForksHaveTheBitsOfSequencesRunAlone) {
  const test::TinyShape shape;
  const test::TinyPlan tiny(shape);
  ops::ExecutorOptions options = default_options();
  options.n_sequences = 4;
  options.n_positions_max = 12 * kCachePage;
  base::ThreadPool pool(2);
  const auto begin = tokens(150, shape.vocab_size, 1), end_a = tokens(40, shape.vocab_size, 2),
             end_b = tokens(90, shape.vocab_size, 3);
  const auto alone = [&](size_t n, const std::vector<int32_t>& end) {
    std::vector<int32_t> ids(begin.begin(), begin.begin() + static_cast<std::ptrdiff_t>(n));
    ids.insert(ids.end(), end.begin(), end.end());
    return result_of(tiny.plan, options, {best_kernel_set(), 1, {}}, ids).cache;
  };
  const auto executor = make_cpu_executor(tiny.plan, options, {}, pool);
  std::vector<uint32_t> logits;
  run(*executor, begin, logits, 0);
  EXPECT_EQ(executor->pages().n_free, 9);
  ASSERT_TRUE(executor->fork(0, 150, 1));
  ASSERT_TRUE(executor->fork(0, 100, 2));
  EXPECT_EQ(executor->pages().n_free, 7);  // of each fork the last page alone
  run(*executor, end_a, logits, 1);
  run(*executor, end_b, logits, 2);
  executor->truncate(0, 70);
  EXPECT_EQ(executor->n_pages_needed(0, 1), 1);  // its last page is shared
  run(*executor, end_b, logits, 0);
  EXPECT_TRUE(cache_of(*executor, 1) == alone(150, end_a));
  EXPECT_TRUE(cache_of(*executor, 2) == alone(100, end_b));
  EXPECT_TRUE(cache_of(*executor, 0) == alone(70, end_b));
  std::vector<std::byte> image(executor->pages().page_bytes);
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(executor->read_page(1, i, image));
    ASSERT_TRUE(executor->append_page(3, i < 2 ? kCachePage : 190 - 2 * kCachePage, image));
  }
  EXPECT_FALSE(executor->append_page(3, 1, image));  // not behind full pages
  EXPECT_FALSE(executor->read_page(1, 3, image));
  EXPECT_TRUE(cache_of(*executor, 3) == alone(150, end_a));
  for (int sequence = 0; sequence < 4; ++sequence) executor->truncate(sequence, 0);
  EXPECT_EQ(executor->pages().n_free, 12);
}

TEST(CpuExecutor, ARunWithoutPagesDoesNothing) {
  const test::TinyShape shape;
  const test::TinyPlan tiny(shape);
  ops::ExecutorOptions options = default_options();
  options.n_sequences = 2;
  options.n_positions_max = 3 * kCachePage;
  base::ThreadPool pool(1);
  const auto executor = make_cpu_executor(tiny.plan, options, {}, pool);
  std::vector<uint32_t> logits;
  const auto ids = tokens(130, shape.vocab_size);
  run(*executor, ids, logits, 0);
  const auto before = cache_of(*executor, 0);
  EXPECT_EQ(executor->n_pages_needed(1, 1), 1);
  EXPECT_THROW(run(*executor, ids, logits, 1), Error);
  EXPECT_FALSE(executor->fork(0, 130, 1));
  EXPECT_TRUE(executor->fork(0, 128, 1));
  EXPECT_THROW(run(*executor, std::span(ids).first(1), logits, 1), Error);
  EXPECT_EQ(executor->n_positions(1), 128);
  EXPECT_EQ(cache_of(*executor, 0), before);
}

TEST(CpuExecutor, OnlyWantedLogits) {
  const test::TinyShape shape;
  const test::TinyPlan tiny(shape);
  const auto ids = tokens(10, shape.vocab_size);
  const Result all = result_of(tiny.plan, default_options(), {best_kernel_set(), 1, {}}, ids);
  base::ThreadPool pool(2);
  const auto executor = make_cpu_executor(tiny.plan, default_options(), {}, pool);
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<uint8_t> outputs(ids.size(), 0);
  executor->run({ids, positions, {}, outputs});
  EXPECT_EQ(cache_of(*executor), all.cache);
  executor->truncate(0, 0);
  outputs[3] = outputs[9] = 1;
  executor->run({ids, positions, {}, outputs});
  const auto vocab = static_cast<size_t>(shape.vocab_size);
  for (size_t j = 0; j < vocab; ++j) {
    EXPECT_EQ(std::bit_cast<uint32_t>(executor->logits(0)[j]), all.logits[3 * vocab + j]);
    EXPECT_EQ(std::bit_cast<uint32_t>(executor->logits(1)[j]), all.logits[9 * vocab + j]);
  }
}

TEST(CpuExecutor, TruncatedSequenceForgets) {
  const test::TinyShape shape;
  const test::TinyPlan tiny(shape);
  const auto ids = tokens(20, shape.vocab_size);
  const Result expected = result_of(tiny.plan, default_options(), {best_kernel_set(), 1, {}}, ids);
  base::ThreadPool pool(2);
  const auto executor = make_cpu_executor(tiny.plan, default_options(), {}, pool);
  std::vector<uint32_t> logits, dropped;
  run(*executor, std::span(ids).first(12), logits);
  run(*executor, tokens(60, shape.vocab_size, 5), dropped);
  executor->truncate(0, 12);
  EXPECT_EQ(executor->n_positions(0), 12);
  run(*executor, std::span(ids).subspan(12), logits);
  EXPECT_EQ(logits, expected.logits);
  EXPECT_EQ(cache_of(*executor), expected.cache);
}

class Watcher : public ops::OpObserver {
 public:
  bool wants(const ops::Op&) override { return true; }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> seen) override {
    EXPECT_EQ(static_cast<size_t>(n_rows * width), seen.size());
    values[&op].assign(seen.begin(), seen.end());
  }
  std::map<const ops::Op*, std::vector<double>> values;
};

TEST(CpuExecutor, ObserverSeesEveryOpAndChangesNothing) {
  test::TinyShape shape;
  shape.gemma = true;
  const test::TinyPlan tiny(shape);
  const auto ids = tokens(11, shape.vocab_size);
  const Result expected = result_of(tiny.plan, default_options(), {best_kernel_set(), 1, {}}, ids);
  std::map<const ops::Op*, std::vector<double>> seen;
  for (const Kernels set : all_sets()) {
    base::ThreadPool pool(2);
    const auto executor = make_cpu_executor(tiny.plan, default_options(), {set}, pool);
    Watcher watcher;
    std::vector<uint32_t> logits;
    run(*executor, ids, logits, 0, &watcher);
    EXPECT_EQ(logits, expected.logits);
    EXPECT_EQ(watcher.values.size(), tiny.plan.ops.size());
    if (set == Kernels::reference) seen = watcher.values;
    EXPECT_EQ(watcher.values, seen) << name(set);
  }
}

TEST(CpuExecutor, NoAllocationPerToken) {
  const test::TinyShape shape;
  const test::TinyPlan tiny(shape);
  for (const Kernels set : all_sets()) {
    base::ThreadPool pool(2);
    const auto executor = make_cpu_executor(tiny.plan, default_options(), {set}, pool);
    const auto ids = tokens(280, shape.vocab_size);
    int32_t position = 0;
    const int32_t sequence = 0;
    const uint8_t output = 1;
    for (const int32_t id : ids) {
      const int64_t before = test::n_allocations;
      executor->run({std::span(&id, 1), std::span(&position, 1), std::span(&sequence, 1), std::span(&output, 1)});
      ASSERT_EQ(test::n_allocations, before) << "at position " << position;
      if (set == Kernels::reference && position == 20) break;
      ++position;
    }
  }
}

TEST(CpuExecutor, PoisonStaysVisible) {
  test::TinyShape shape;
  shape.dtype = tensor::DType::F32;
  test::TinyPlan tiny(shape);
  // One weight of the last token's embedding is not a number; others must not notice.
  const auto ids = std::vector<int32_t>{3, 5, 7};
  const tensor::TensorView& table = tiny.plan.weights[0].view;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(const_cast<std::byte*>(table.row(5)) + 40, &nan, sizeof nan);
  for (const Kernels set : all_sets()) {
    const Result result = result_of(tiny.plan, default_options(), {set, 1, {}}, ids);
    const auto vocab = static_cast<size_t>(shape.vocab_size);
    EXPECT_TRUE(std::isfinite(std::bit_cast<float>(result.logits[0])));
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(result.logits[vocab])));
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(result.logits[2 * vocab])));
  }
}

TEST(CpuExecutor, RefusesWhatCannotBeRun) {
  const test::TinyShape shape;
  const test::TinyPlan tiny(shape);
  base::ThreadPool pool(1);
  ops::ExecutorOptions options = default_options();
  options.n_ctx = 8;
  options.n_batch_max = 6;
  options.n_outputs_max = 2;
  const auto executor = make_cpu_executor(tiny.plan, options, {}, pool);
  const std::vector<int32_t> ids = {1, 2, 3}, positions = {0, 1, 2}, late = {1, 2, 3}, alien = {1, 1, 1};
  const std::vector<uint8_t> none(3, 0), all(3, 1);
  EXPECT_THROW(executor->run({ids, late, {}, none}), Error);
  EXPECT_THROW(executor->run({ids, positions, alien, none}), Error);
  EXPECT_THROW(executor->run({ids, positions, {}, all}), Error);
  EXPECT_EQ(executor->n_positions(0), 0);
  executor->run({ids, positions, {}, none});
  const std::vector<int32_t> next = {3, 4, 5}, beyond = {6, 7, 8};
  executor->run({ids, next, {}, none});
  EXPECT_THROW(executor->run({ids, beyond, {}, none}), Error);
  EXPECT_EQ(executor->n_positions(0), 6);
  options.cache_k = ops::CacheType::q8_0;
  test::TinyShape odd;
  odd.head_dim = 16;
  odd.n_heads = 4;
  const test::TinyPlan tiny_odd(odd);
  EXPECT_THROW(make_cpu_executor(tiny_odd.plan, options, {}, pool), Error);
  options.n_ctx = 0;
  EXPECT_THROW(make_cpu_executor(tiny.plan, options, {}, pool), Error);
}

}  // namespace
}  // namespace assay::backend::cpu
