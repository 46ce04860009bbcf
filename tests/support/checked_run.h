// For tests: runs tokens through an executor of a plan while verify's checker watches. Needs fmt at
// link time.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/oracle/oracle_executor.h"
#include "bounds/op_checker.h"
#include "ops/plan/executor.h"
#include "support/random_numbers.h"

namespace assay::test {

struct CheckedSetting {
  std::string name;
  bool oracle = false, weights_as_f32 = false;
  int planes = 2;
  ops::CacheType cache = ops::CacheType::f16;
  Kernels kernels = backend::cpu::best_kernel_set();

  bounds::Declared declared() const {
    bounds::Declared d;
    d.own_sums = !oracle;
    d.unit_roundoff = oracle ? 0x1p-53 : 0x1p-24;
    d.activation_bits = oracle || weights_as_f32 ? 0 : planes == 2 ? 15 : 8;
    d.cache_k = d.cache_v = oracle ? ops::CacheType::f32 : cache;
    return d;
  }
};

inline std::vector<CheckedSetting> checked_settings() {
  std::vector<CheckedSetting> all = {{"oracle", true}};
  const std::pair<ops::CacheType, const char*> caches[] = {
      {ops::CacheType::f16, "f16"}, {ops::CacheType::q8_0, "q8_0"}, {ops::CacheType::f32, "f32"}};
  for (const auto& [cache, cache_name] : caches) {
    all.push_back({fmt::format("f32, cache {}", cache_name), false, true, 2, cache});
    all.push_back({fmt::format("exact/15, cache {}", cache_name), false, false, 2, cache});
    all.push_back({fmt::format("exact/8, cache {}", cache_name), false, false, 1, cache});
  }
  return all;
}

// Tokens of the sequences 0 .. n_sequences - 1, run in chunks.
class CheckedRun {
 public:
  CheckedRun(const ops::Plan& plan, const CheckedSetting& setting, base::ThreadPool& pool, int64_t n_ctx,
             int n_sequences = 1, bounds::CheckerOptions options = {})
      : CheckedRun(plan, plan, setting, pool, n_ctx, n_sequences, options) {}
  // The executor runs another plan than the one that it is held against.
  CheckedRun(const ops::Plan& run_plan, const ops::Plan& plan, const CheckedSetting& setting, base::ThreadPool& pool,
             int64_t n_ctx, int n_sequences = 1, bounds::CheckerOptions options = {})
      : plan_(plan), checker(plan, setting.declared(), n_ctx, n_sequences, pool, options),
        next_(static_cast<size_t>(n_sequences), 0) {
    ops::ExecutorOptions o;
    o.n_ctx = n_ctx;
    o.n_batch_max = o.n_outputs_max = n_ctx;
    o.n_sequences = n_sequences;
    o.cache_k = o.cache_v = setting.cache;
    o.weights_as_f32 = setting.weights_as_f32;
    o.planes = setting.planes;
    executor = setting.oracle ? backend::oracle::make_oracle_executor(run_plan, o, pool)
                              : backend::cpu::make_cpu_executor(run_plan, o, {setting.kernels}, pool);
  }

  // One batch; observer: who watches (and hands on to the checker), or the checker itself.
  void run(std::span<const int32_t> tokens, int sequence = 0, ops::OpObserver* observer = nullptr,
           bool all_outputs = true) {
    std::vector<int32_t> positions, sequences(tokens.size(), sequence);
    std::vector<uint8_t> outputs(tokens.size(), all_outputs ? 1 : 0);
    if (!outputs.empty()) outputs.back() = 1;
    for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(next_[static_cast<size_t>(sequence)]++);
    const ops::Batch batch{
        tokens, positions, sequences, outputs, {.observer = observer != nullptr ? observer : &checker}};
    checker.begin(batch);
    executor->run(batch);
    checker.end();
  }

  void truncate(int sequence, int32_t n_positions) {
    executor->truncate(sequence, n_positions);
    next_[static_cast<size_t>(sequence)] = n_positions;
  }

  std::vector<int32_t> random_tokens(int n, uint64_t seed) const {
    Random random(seed);
    std::vector<int32_t> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(random.below(static_cast<int>(plan_.vocab_size)));
    return tokens;
  }

  // What is wrong, for a message; empty: nothing.
  std::string failure() const {
    if (!checker.place().has_value()) return "";
    const bounds::FailedOp& f = *checker.first_failure();
    const Place& p = *checker.place();
    return fmt::format("{} (op {}, batch {}) row {} head {} element {}: found {}, expected {}, off by {} bounds", p.op,
                       f.i_op, f.i_batch, p.row, p.head, p.element, p.found, p.expected,
                       (p.found - p.expected) / p.bound);
  }

 private:
  const ops::Plan& plan_;

 public:
  bounds::OpChecker checker;
  std::unique_ptr<ops::Executor> executor;

 private:
  std::vector<int32_t> next_;
};

}  // namespace assay::test
