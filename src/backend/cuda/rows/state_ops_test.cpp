// The kernels of ops that keep a state against their references, by bits: rows and states, several sequences in one
// batch, also in turns, cut into any batches, over checkpoints, and from a checkpoint on after a cut.
#include "backend/cuda/rows/state_ops.h"

#include <functional>

#include "backend/cuda/runtime/device_states.h"
#include "backend/cuda/runtime/device_test.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"
#include "support/random_numbers.h"

namespace assay::backend::cuda {
namespace {

constexpr int kSequences = 3;
constexpr float kInf = INFINITY;

std::vector<float> numbers(int64_t n, uint64_t seed, float scale = 1.0f, float shift = 0.0f) {
  test::Random random(seed);
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(shift + random.normal() * scale);
  return x;
}

// Consecutive tokens of a sequence, or (cut) how many positions of it are left.
struct Part {
  int sequence, n;
  bool cut = false;
};
using Batch = std::vector<Part>;
const std::vector<Batch> kBatches = {
    {{0, 5}, {1, 1}, {2, 3}},
    {{0, 1}},
    {{2, 1}, {0, 1}},
    {{1, 1}, {2, 1}, {0, 1}},
    {{1, 9}, {0, 2}, {1, 1}},  // sequence 1 is interrupted
    {{2, 20}},
    {{2, 22, true}},
    {{2, 2}, {0, 1}, {2, 1}, {0, 1}, {1, 1}},
    {{1, 3, true}},
    {{1, 1}, {1, 1}},
    {{0, 33}, {1, 1}, {2, 2}},
    {{0, 41, true}, {2, 0, true}},
    {{2, 3}, {0, 4}},
    {{2, 1}},
    {{1, 1}, {0, 1}, {1, 1}, {2, 70}},
};

// The same batches through a kernel and through the reference, each with states of its own.
class Both {
 public:
  // n_columns: of each input; the last is the width of y.
  Both(ops::StateLayer layer, std::vector<int64_t> widths, int64_t checkpoint_interval = 4)
      : widths_(std::move(widths)) {
    options_.n_ctx = 128, options_.n_batch_max = 128, options_.n_sequences = kSequences,
    options_.checkpoint_interval = checkpoint_interval;
    layers_ = {{0, 0}, {1, 7}, layer};  // one that is kept elsewhere, one that nothing here touches
    device_ = std::make_unique<DeviceStates>(layers_, options_);
    host_ = std::make_unique<ops::StateStore<float>>(layers_, options_);
  }

  std::function<std::vector<std::vector<float>>(int64_t n_tokens, uint64_t seed)> inputs;
  std::function<void(const StateView& state, const std::vector<const float*>& inputs, float* y)> kernel;
  std::function<void(const ops::StateRun<float>& at, const std::vector<std::vector<float>>& inputs, float* y)>
      reference;

  void expect_same(const std::string& what) {
    uint64_t seed = 1;
    for (const Batch& batch : kBatches) {
      batch.front().cut ? cut(batch) : run(batch, ++seed);
      if (::testing::Test::HasFailure()) FAIL() << what << ", batch " << seed;
    }
  }

 private:
  void cut(const Batch& batch) {
    for (const Part& part : batch) {
      int64_t& held = n_positions_[part.sequence];
      const int64_t left = host_->truncate(part.sequence, part.n, held);
      EXPECT_EQ(device_->truncate(part.sequence, part.n, held, nullptr), left);
      held = left;
      EXPECT_LE(held, part.n);
      compare_states();
    }
  }

  void run(const Batch& batch, uint64_t seed) {
    std::vector<int32_t> sequences, positions;
    std::vector<ops::TokenRun> runs;
    for (const Part& part : batch) {
      int64_t& held = n_positions_[part.sequence];
      runs.push_back({static_cast<int64_t>(sequences.size()), part.n, part.sequence, held});
      for (int i = 0; i < part.n; ++i)
        sequences.push_back(part.sequence), positions.push_back(static_cast<int32_t>(held++));
    }
    const auto n_tokens = static_cast<int64_t>(sequences.size());
    const std::vector<std::vector<float>> rows = inputs(n_tokens, seed);
    std::vector<float> expected(static_cast<size_t>(n_tokens * widths_.back()));
    host_->begin(runs);
    host_->run(2, 0, layers_[2].n_units, [&](const ops::StateRun<float>& at) { reference(at, rows, expected.data()); });
    host_->end();

    const DeviceBuffer on_sequences = upload(sequences), on_positions = upload(positions),
                       y = poisoned(expected.size());
    std::vector<DeviceBuffer> on_device;
    std::vector<const float*> pointers;
    for (const std::vector<float>& values : rows) {
      on_device.push_back(upload(values));
      pointers.push_back(on_device.back().as<const float>());
    }
    StateView view = device_->view(2);
    view.sequences = on_sequences.as<const int32_t>(), view.positions = on_positions.as<const int32_t>();
    view.n_tokens = static_cast<int32_t>(n_tokens);
    device_->begin(runs);
    kernel(view, pointers, y.as<float>());
    check(cudaGetLastError(), "starting a kernel");
    EXPECT_TRUE(same_floats(download<float>(y.data(), expected.size()), expected)) << "rows";
    device_->end();
    compare_states();
  }

  void compare_states() {
    for (int sequence = 0; sequence < kSequences; ++sequence) {
      const int64_t n = n_positions_[sequence];
      if (n == 0) continue;
      EXPECT_TRUE(same_floats(device_->read(sequence, 2, n), host_->state(sequence, 2)))
          << "the state of sequence " << sequence << " after " << n << " positions";
    }
  }

  std::vector<int64_t> widths_;
  ops::ExecutorOptions options_;
  std::vector<ops::StateLayer> layers_;
  std::unique_ptr<DeviceStates> device_;
  std::unique_ptr<ops::StateStore<float>> host_;
  int64_t n_positions_[kSequences] = {};
};

TEST(CudaStates, CausalConvHasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const int64_t kernel : {1, 2, 3, 4, 7, 64}) {
    for (const int64_t d : {1, 32, 40, 129, 512}) {
      for (const bool has_bias : {false, true}) {
        const auto w = numbers(d * kernel, 2), bias = numbers(d, 3);
        const DeviceBuffer on_w = upload(w), on_bias = upload(bias);
        Both both(ops::CausalConv::state_of(d, kernel), {d});
        both.inputs = [&](int64_t n, uint64_t seed) {
          auto x = numbers(n * d, seed);
          if (kernel == 3) x[x.size() / 2] = kInf, x[x.size() / 3] = 1e-41f, x[0] = -0.0f;
          return std::vector<std::vector<float>>{x};
        };
        both.kernel = [&](const StateView& state, const std::vector<const float*>& in, float* y) {
          causal_conv(
              {state, in[0], on_w.as<const float>(), has_bias ? on_bias.as<const float>() : nullptr, d, kernel, y}, {});
        };
        both.reference = [&](const ops::StateRun<float>& at, const std::vector<std::vector<float>>& in, float* y) {
          for (int64_t first = 0; first < d; first += 32) {
            ops::causal_conv_ref(in[0].data() + at.begin * d + first, at.end - at.begin, d, w.data() + first * kernel,
                                 has_bias ? bias.data() + first : nullptr, kernel, std::min<int64_t>(32, d - first),
                                 at.state + first * (kernel - 1), y + at.begin * d + first);
          }
        };
        both.expect_same("width " + std::to_string(kernel) + ", " + std::to_string(d) + " columns");
      }
    }
  }
}

struct DeltaShape {
  int64_t n_heads, n_key_heads, d_k, d_v;
};

void check_delta_rule(const DeltaShape& s, bool by_row, bool tiled, bool is_walk) {
  const int64_t keys = s.n_key_heads * s.d_k, values = s.n_heads * s.d_v, n_decay = by_row ? s.d_k : 1;
  Both both({s.n_heads, s.d_k * s.d_v}, {values}, tiled ? 64 : 4);
  both.inputs = [&](int64_t n, uint64_t seed) {
    std::vector<std::vector<float>> in = {
        numbers(n * keys, seed), numbers(n * keys, seed + 100, 0.2f), numbers(n * values, seed + 200),
        numbers(n * s.n_heads * n_decay, seed + 300, 0.02f, 0.9f), numbers(n * s.n_heads, seed + 400, 0.1f, 0.5f)};
    if (seed == 12) in[2][0] = kInf;
    return in;
  };
  both.kernel = [&](const StateView& state, const std::vector<const float*>& in, float* y) {
    DeltaTask task;
    task.state = state;
    task.q = in[0], task.k = in[1], task.v = in[2], task.decay = in[3], task.strength = in[4], task.y = y;
    task.n_heads = static_cast<int32_t>(s.n_heads), task.n_key_heads = static_cast<int32_t>(s.n_key_heads);
    task.d_k = static_cast<int32_t>(s.d_k), task.d_v = static_cast<int32_t>(s.d_v);
    task.tiled = tiled, task.decay_by_row = s.d_k > 1 && by_row;
    const bool in_registers = s.d_k == 16 || s.d_k == 64 || s.d_k == 128, several = state.n_tokens > 1;
    delta_rule(!in_registers        ? OpKernel::delta_in_memory
               : is_walk && several ? OpKernel::delta_walk
                                    : OpKernel::delta,
               task, {});
  };
  both.reference = [&](const ops::StateRun<float>& at, const std::vector<std::vector<float>>& in, float* y) {
    for (int64_t h = 0; h < s.n_heads; ++h) {
      const int64_t key = (tiled ? h % s.n_key_heads : h / (s.n_heads / s.n_key_heads)) * s.d_k;
      for (int64_t t = at.begin; t < at.end; ++t) {
        ops::delta_rule_ref(in[0].data() + t * keys + key, in[1].data() + t * keys + key,
                            in[2].data() + t * values + h * s.d_v, in[3].data() + (t * s.n_heads + h) * n_decay,
                            n_decay, in[4][static_cast<size_t>(t * s.n_heads + h)], s.d_k, s.d_v,
                            at.state + h * s.d_k * s.d_v, y + t * values + h * s.d_v);
      }
    }
  };
  both.expect_same("d_k " + std::to_string(s.d_k) + (by_row ? ", a decay for each row" : "") +
                   (is_walk ? ", by three warps" : ""));
}

TEST(CudaStates, DeltaRuleHasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const DeltaShape& s : std::vector<DeltaShape>{{2, 1, 1, 3},
                                                     {4, 2, 16, 16},
                                                     {3, 3, 24, 33},
                                                     {2, 2, 33, 64},
                                                     {4, 2, 64, 48},
                                                     {6, 2, 128, 128},
                                                     {1, 1, 200, 32}}) {
    for (const bool by_row : {false, true}) {
      for (const bool tiled : {false, true}) {
        for (const bool is_walk : {false, true}) check_delta_rule(s, by_row, tiled, is_walk);
      }
    }
  }
}

struct ScanShape {
  int64_t n_heads, n_groups, head_dim, d_state;
};

TEST(CudaStates, SelectiveScanHasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const ScanShape& s : std::vector<ScanShape>{{5, 1, 1, 1},
                                                   {40, 1, 1, 16},
                                                   {4, 2, 5, 15},
                                                   {2, 1, 3, 17},
                                                   {2, 2, 4, 32},
                                                   {4, 2, 8, 40},
                                                   {3, 1, 7, 64},
                                                   {4, 1, 16, 128},
                                                   {2, 1, 4, 256},
                                                   {2, 1, 3, 300}}) {
    for (const bool by_state : {false, true}) {
      for (const bool has_d : {false, true}) {
        const int64_t width = s.n_heads * s.head_dim, of_groups = s.n_groups * s.d_state,
                      n_a = by_state ? s.d_state : 1;
        auto a = numbers(s.n_heads * n_a, 1);
        for (float& x : a) x = -0.2f - x * x;
        const auto d = numbers(s.n_heads, 2);
        const DeviceBuffer on_a = upload(a), on_d = upload(d);
        Both both({s.n_heads, s.head_dim * s.d_state}, {width});
        both.inputs = [&](int64_t n, uint64_t seed) {
          std::vector<std::vector<float>> in = {numbers(n * width, seed),
                                                numbers(n * s.n_heads, seed + 100, 0.05f, 0.3f),
                                                numbers(n * of_groups, seed + 200), numbers(n * of_groups, seed + 300)};
          if (seed == 12) in[0][0] = kInf;
          return in;
        };
        both.kernel = [&](const StateView& state, const std::vector<const float*>& in, float* y) {
          ScanTask task;
          task.state = state;
          task.x = in[0], task.dt = in[1], task.b = in[2], task.c = in[3], task.y = y;
          task.a = on_a.as<const float>(), task.d = has_d ? on_d.as<const float>() : nullptr;
          task.n_heads = static_cast<int32_t>(s.n_heads), task.n_groups = static_cast<int32_t>(s.n_groups);
          task.head_dim = static_cast<int32_t>(s.head_dim), task.d_state = static_cast<int32_t>(s.d_state);
          task.a_by_state = n_a > 1;
          selective_scan(task, {});
        };
        both.reference = [&](const ops::StateRun<float>& at, const std::vector<std::vector<float>>& in, float* y) {
          for (int64_t h = 0; h < s.n_heads; ++h) {
            const int64_t group = h / (s.n_heads / s.n_groups) * s.d_state;
            for (int64_t t = at.begin; t < at.end; ++t) {
              ops::selective_scan_ref({in[0].data() + t * width + h * s.head_dim, in[2].data() + t * of_groups + group,
                                       in[3].data() + t * of_groups + group, a.data() + h * n_a,
                                       in[1][static_cast<size_t>(t * s.n_heads + h)], d[static_cast<size_t>(h)], has_d,
                                       n_a, s.head_dim, s.d_state},
                                      at.state + h * s.head_dim * s.d_state, y + t * width + h * s.head_dim);
            }
          }
        };
        both.expect_same("d_state " + std::to_string(s.d_state) + (by_state ? ", a by state" : ""));
      }
    }
  }
}

// A run of one token leaves the state before it, so that another token may take its place.
TEST(CudaStates, AnotherTokenMayTakeTheLastOnesPlace) {
  ASSAY_REQUIRE_GPU();
  const int64_t d = 32, kernel = 4;
  ops::ExecutorOptions options;
  options.n_ctx = 64;
  const std::vector<ops::StateLayer> layers = {ops::CausalConv::state_of(d, kernel)};
  const DeviceStates states(layers, options);
  const DeviceBuffer w = upload(numbers(d * kernel, 1)), sequence = upload(std::vector<int32_t>{0});
  const auto run = [&](int32_t position, uint64_t seed) {
    const DeviceBuffer x = upload(numbers(d, seed)), y = poisoned(static_cast<size_t>(d)),
                       at = upload(std::vector<int32_t>{position});
    StateView view = states.view(0);
    view.sequences = sequence.as<const int32_t>(), view.positions = at.as<const int32_t>(), view.n_tokens = 1;
    causal_conv({view, x.as<const float>(), w.as<const float>(), nullptr, d, kernel, y.as<float>()}, {});
    return download<float>(y.data(), static_cast<size_t>(d));
  };
  for (int32_t position = 0; position < 9; ++position) {
    const std::vector<float> first = run(position, 50), other = run(position, 60), again = run(position, 50);
    EXPECT_TRUE(same_floats(again, first)) << position;
    EXPECT_FALSE(same_floats(other, first)) << position;
  }
}

}  // namespace
}  // namespace assay::backend::cuda
