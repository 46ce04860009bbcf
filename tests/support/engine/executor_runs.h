// For tests of executors made of several: everything that a run of batches gives, for comparison by bits, and one that
// fails when asked to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "ops/plan/executor.h"
#include "ops/plan/forwarding_executor.h"
#include "support/random_numbers.h"

namespace assay::test {

struct Seen {
  std::map<const ops::Op*, std::vector<double>> values;  // of the last batch
  std::vector<std::vector<float>> logits;
  std::vector<std::byte> cache;
  friend bool operator==(const Seen& a, const Seen& b) {
    const auto same = [](const auto& x, const auto& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0;
    };
    if (a.values.size() != b.values.size() || a.logits.size() != b.logits.size() || !same(a.cache, b.cache))
      return false;
    for (const auto& [op, of_op] : a.values) {
      if (!b.values.contains(op) || !same(of_op, b.values.at(op))) return false;
    }
    for (size_t i = 0; i < a.logits.size(); ++i) {
      if (!same(a.logits[i], b.logits[i])) return false;
    }
    return true;
  }
};

class Keeper final : public ops::OpObserver {
 public:
  explicit Keeper(Seen& seen) : seen_(seen) {}
  bool wants(const ops::Op&) override { return true; }
  void on_op(const ops::Op& op, int64_t, int64_t, std::span<const double> values) override {
    seen_.values[&op].assign(values.begin(), values.end());
  }

 private:
  Seen& seen_;
};

// Two sequences side by side in chunks, single tokens, and a piece that is taken back and run again.
inline Seen run_all(ops::Executor& executor, bool observed) {
  Seen seen;
  Keeper keeper(seen);
  Random random(3);
  for (const int n : {1, 5, 24, 1, 1}) {
    std::vector<int32_t> tokens, positions, sequences;
    std::vector<uint8_t> outputs;
    for (int i = 0; i < n; ++i) {
      for (const int sequence : {0, 1}) {
        if (sequence == 1 && i % 2 == 1) continue;
        tokens.push_back(random.below(64));
        positions.push_back(static_cast<int32_t>(executor.n_positions(sequence)) + (sequence == 0 ? i : i / 2));
        sequences.push_back(sequence);
        outputs.push_back(i + 1 >= n - 1 ? 1 : 0);
      }
    }
    executor.run({tokens, positions, sequences, outputs, {.observer = observed ? &keeper : nullptr}});
    const auto n_outputs = std::count(outputs.begin(), outputs.end(), uint8_t{1});
    for (int64_t i = 0; i < n_outputs; ++i)
      seen.logits.emplace_back(executor.logits(i).begin(), executor.logits(i).end());
    if (n == 24) executor.truncate(0, 7);
  }
  for (const int sequence : {0, 1}) {
    executor.visit_cache(sequence, [&](std::span<const std::byte> bytes) {
      seen.cache.insert(seen.cache.end(), bytes.begin(), bytes.end());
    });
  }
  return seen;
}

inline ops::ExecutorOptions options_of(ops::CacheType cache, bool as_f32, int planes) {
  ops::ExecutorOptions options;
  options.n_ctx = 48;
  options.n_batch_max = 40;
  options.n_sequences = 2;
  options.cache_k = options.cache_v = cache;
  options.weights_as_f32 = as_f32;
  options.planes = planes;
  return options;
}

// Fails at its n-th run.
class Failing final : public ops::ForwardingExecutor {
 public:
  Failing(std::unique_ptr<ops::Executor> inner, int at) : ForwardingExecutor(std::move(inner)), n_left_(at) {}
  void run(const ops::Batch& batch) override {
    if (--n_left_ == 0) throw Error(Errc::device, "as asked");
    ForwardingExecutor::run(batch);
  }

 private:
  int n_left_;
};

}  // namespace assay::test
