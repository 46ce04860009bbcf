// States of sequences: zero at first, kept at fixed positions, taken back to the last of them before a cut, copied from
// one sequence to another.
#include "ops/state/state_store.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace assay::ops {
namespace {

// Two states whose every element counts the tokens that went by, weighted by their place.
class Counting {
 public:
  explicit Counting(int64_t n_ctx, int n_sequences = 2) : n_positions_(static_cast<size_t>(n_sequences), 0) {
    plan_.states = {{3, 5}, {2, 7}};
    options_.n_ctx = n_ctx, options_.n_sequences = n_sequences, options_.n_batch_max = 64,
    options_.checkpoint_interval = 4;
    store_ = std::make_unique<StateStore<float>>(plan_, options_);
  }

  void run(int64_t sequence, int64_t n, bool fails = false) {
    const std::vector<TokenRun> runs = {{0, n, sequence, n_positions_[static_cast<size_t>(sequence)]}};
    store_->begin(runs);
    for (int32_t state = 0; state < 2; ++state) {
      const StateLayer& layer = plan_.states[static_cast<size_t>(state)];
      for (int64_t unit = 0; unit < layer.n_units; ++unit) {
        store_->run(state, unit, unit + 1, [&](const StateRun<float>& at) {
          for (int64_t i = 0; i < layer.unit_floats; ++i)
            at.state[unit * layer.unit_floats + i] += static_cast<float>((at.end - at.begin) * (unit + 1));
        });
      }
    }
    if (fails) return;
    store_->end();
    n_positions_[static_cast<size_t>(sequence)] += n;
  }
  int64_t truncate(int64_t sequence, int64_t n) {
    return n_positions_[static_cast<size_t>(sequence)] =
               store_->truncate(sequence, n, n_positions_[static_cast<size_t>(sequence)]);
  }
  int64_t n_usable(int64_t sequence, int64_t n) const {
    return store_->n_usable(sequence, n, n_positions_[static_cast<size_t>(sequence)]);
  }
  int64_t fork(int64_t from, int64_t n, int64_t to) {
    return n_positions_[static_cast<size_t>(to)] = store_->fork(from, n, n_positions_[static_cast<size_t>(from)], to);
  }
  // Whether every element of a sequence's states counts n tokens.
  bool counts(int64_t sequence, int64_t n) const {
    bool all = true;
    int state = 0;
    store_->visit(sequence, [&](std::span<const std::byte> bytes) {
      const auto* values = reinterpret_cast<const float*>(bytes.data());
      const StateLayer& layer = plan_.states[static_cast<size_t>(state++)];
      for (int64_t i = 0; i < layer.n_floats(); ++i)
        all = all && values[i] == static_cast<float>(n * (i / layer.unit_floats + 1));
    });
    return all && state == 2;
  }

 private:
  Plan plan_;
  ExecutorOptions options_;
  std::unique_ptr<StateStore<float>> store_;
  std::vector<int64_t> n_positions_;
};

TEST(StateStore, ACutGoesBackToTheLastCheckpointBeforeIt) {
  for (const int64_t chunk : {1, 3, 4, 7, 40}) {
    Counting states(64);
    for (int64_t done = 0; done < 40; done += chunk) states.run(0, std::min(chunk, 40 - done));
    EXPECT_TRUE(states.counts(0, 40));
    EXPECT_EQ(states.truncate(0, 40), 40);
    EXPECT_EQ(states.truncate(0, 39), 36);  // 36 = 4 * 9: the last odd multiple
    EXPECT_TRUE(states.counts(0, 36)) << chunk;
    EXPECT_EQ(states.truncate(0, 35), 32);  // 4 * 8
    EXPECT_TRUE(states.counts(0, 32)) << chunk;
    EXPECT_EQ(states.truncate(0, 31), 16);  // 4 * 4; 28 had the place that 36 took, 24 that of 40
    EXPECT_TRUE(states.counts(0, 16)) << chunk;
    EXPECT_EQ(states.truncate(0, 1), 0);
    EXPECT_TRUE(states.counts(0, 0)) << chunk;
    EXPECT_TRUE(states.counts(1, 0)) << chunk;
  }
}

TEST(StateStore, GoesOnFromACheckpoint) {
  Counting states(64);
  states.run(0, 30);
  EXPECT_EQ(states.truncate(0, 29), 28);
  states.run(0, 10);
  EXPECT_TRUE(states.counts(0, 38));
  EXPECT_EQ(states.truncate(0, 37), 36);
  EXPECT_TRUE(states.counts(0, 36));
}

TEST(StateStore, ARunThatFailedIsTakenBack) {
  Counting states(64);
  states.run(0, 10);
  states.run(0, 9, true);
  EXPECT_EQ(states.truncate(0, 10), 8);  // also without a cut
  EXPECT_TRUE(states.counts(0, 8));
  states.run(0, 2);
  EXPECT_TRUE(states.counts(0, 10));
  EXPECT_EQ(states.truncate(0, 10), 10);
}

TEST(StateStore, AShortContextHasNoCheckpoints) {
  Counting states(4);
  states.run(0, 4);
  EXPECT_EQ(states.truncate(0, 3), 0);
  EXPECT_TRUE(states.counts(0, 0));
}

TEST(StateStore, AForkHasTheStatesAndTheCheckpointsBeforeIt) {
  Counting states(64);
  states.run(0, 21);
  EXPECT_EQ(states.fork(0, 21, 1), 21);
  states.run(0, 5);
  EXPECT_TRUE(states.counts(1, 21));
  EXPECT_EQ(states.truncate(1, 19), 16);
  EXPECT_TRUE(states.counts(1, 16));
  EXPECT_TRUE(states.counts(0, 26));
}

TEST(StateStore, AForkOfABeginningGoesOnFromACheckpoint) {
  Counting states(64);
  states.run(0, 30);
  EXPECT_EQ(states.n_usable(0, 30), 30);
  EXPECT_EQ(states.n_usable(0, 29), 28);
  EXPECT_EQ(states.n_usable(0, 3), 0);
  states.run(1, 9);  // what was there before
  EXPECT_EQ(states.fork(0, 29, 1), 28);
  EXPECT_TRUE(states.counts(1, 28));
  states.run(1, 3);
  EXPECT_TRUE(states.counts(1, 31));
  EXPECT_EQ(states.truncate(1, 27), 24);
  EXPECT_TRUE(states.counts(1, 24));
  EXPECT_EQ(states.fork(0, 3, 1), 0);
  EXPECT_TRUE(states.counts(1, 0));
  EXPECT_EQ(states.n_usable(1, 64), 0);
  EXPECT_TRUE(states.counts(0, 30));
}

TEST(StateStore, AForkOfARunThatFailedGoesOnFromACheckpoint) {
  Counting states(64);
  states.run(0, 10);
  states.run(0, 9, true);
  EXPECT_EQ(states.fork(0, 10, 1), 8);
  EXPECT_TRUE(states.counts(1, 8));
  EXPECT_EQ(states.fork(1, 8, 0), 8);  // the other way: what failed is gone
  EXPECT_TRUE(states.counts(0, 8));
  EXPECT_EQ(states.truncate(0, 8), 8);
}

TEST(StateStore, WithoutStatesNothingIsKept) {
  const Plan plan;
  ExecutorOptions options;
  options.n_ctx = 64;
  StateStore<double> store(plan, options);
  EXPECT_TRUE(store.empty());
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(store.truncate(0, 3, 10), 3);
}

}  // namespace
}  // namespace assay::ops
