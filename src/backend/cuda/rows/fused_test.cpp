// The kernels of several ops against the references of those ops, by bits, over few rows and many.
#include "backend/cuda/rows/fused.h"

#include "backend/cuda/attention/cache_test_pages.h"
#include "backend/cuda/kernels/op_table.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/this_card.h"
#include "ops/attention/rope.h"
#include "ops/rows/activation.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

using quant::Activation;

// Integers of n_rows rows on the device, and what they should be.
struct Integers {
  Integers(Activation kind, int planes, int64_t rows, int64_t k)
      : memory(upload(std::vector<std::byte>(quant::activations_bytes(kind, planes, rows, k)))),
        view(quant::carve(kind, planes, rows, k, memory.data())) {}

  void expect(const std::vector<float>& x, const std::string& what) const {
    std::vector<std::byte> bytes(memory.size());
    const quant::Activations wanted = quant::carve(view.kind, view.planes, view.n_rows, view.k, bytes.data());
    for (int64_t row = 0; row < view.n_rows; ++row) quant::quantise_row_ref(x.data() + row * view.k, wanted, row);
    std::vector<std::byte> found = download<std::byte>(memory.data(), memory.size());
    const quant::Activations got = quant::carve(view.kind, view.planes, view.n_rows, view.k, found.data());
    const auto n = static_cast<size_t>(view.n_rows * view.k), sums = n / static_cast<size_t>(wanted.group()),
               blocks = n / static_cast<size_t>(wanted.block());
    EXPECT_EQ(std::memcmp(got.q, wanted.q, n), 0) << what;
    EXPECT_EQ(std::memcmp(got.q_sums, wanted.q_sums, 2 * sums), 0) << what;
    EXPECT_TRUE(same_floats({got.d, blocks}, {wanted.d, blocks})) << what;
    if (view.planes == 1) return;
    EXPECT_EQ(std::memcmp(got.l, wanted.l, n), 0) << what;
    EXPECT_EQ(std::memcmp(got.l_sums, wanted.l_sums, 2 * sums), 0) << what;
  }

  DeviceBuffer memory;
  quant::Activations view;
};

// x = a, a + b or a + norm(b) by `n_terms`; then its norm and integers.
void check_norm_by(const OpRow& by, int64_t n_rows, int64_t d, Activation kind, int planes, int n_terms) {
  const std::string what = std::to_string(n_rows) + " rows of " + std::to_string(d) + ", terms " +
                           std::to_string(n_terms) + ", " + std::string(by.name);
  std::vector<float> a = test::random_activations(n_rows * d, 1), b = test::random_activations(n_rows * d, 2);
  a[3] = std::numeric_limits<float>::infinity();
  b[static_cast<size_t>(d + 5)] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> w = test::random_activations(d, 3), pre_w = test::random_activations(d, 4);
  std::vector<float> pre_y = b, sum = a, y(a.size());
  for (int64_t row = 0; row < n_rows; ++row) {
    if (n_terms == 3) ops::rms_norm_ref(b.data() + row * d, pre_w.data(), 1e-6f, d, pre_y.data() + row * d);
    for (int64_t j = row * d; n_terms > 1 && j < (row + 1) * d; ++j)
      sum[static_cast<size_t>(j)] = a[static_cast<size_t>(j)] + pre_y[static_cast<size_t>(j)];
    ops::rms_norm_ref(sum.data() + row * d, w.data(), 1e-5f, d, y.data() + row * d);
  }
  const DeviceBuffer on_a = upload(a), on_b = upload(b), on_w = upload(w), on_pre = upload(pre_w),
                     to_pre = poisoned(a.size()), to_sum = poisoned(a.size()), to_y = poisoned(a.size());
  const Integers integers(kind, planes, n_rows, d);
  NormTask task;
  task.a = on_a.as<float>();
  task.w = on_w.as<float>();
  task.eps = 1e-5f;
  task.d = d;
  task.n_rows = n_rows;
  task.y = to_y.as<float>();
  task.q = integers.view;
  if (n_terms > 1) task.b = on_b.as<float>(), task.sum = to_sum.as<float>();
  if (n_terms == 3) task.pre_w = on_pre.as<float>(), task.pre_eps = 1e-6f, task.pre_y = to_pre.as<float>();
  norm_rows(by.kernel, task, Queue());
  EXPECT_TRUE(same_floats(download<float>(to_y.data(), y.size()), y)) << what;
  if (n_terms > 1) {
    EXPECT_TRUE(same_floats(download<float>(to_sum.data(), y.size()), sum)) << what;
  }
  if (n_terms == 3) {
    EXPECT_TRUE(same_floats(download<float>(to_pre.data(), y.size()), pre_y)) << what;
  }
  integers.expect(y, what);
}

// By every row of the table that takes a group.
template <class Check>
void check_rows(lower::FusionGroup::Kind group, const OpShape& shape, int64_t n, Check&& check) {
  int n_rows = 0;
  for (const OpRow& row : op_table()) {
    const bool takes = row.takes == nullptr || row.takes(shape, this_card());
    if (row.type != nullptr || row.group != group || !takes || n < row.n_min) continue;
    check(row);
    ++n_rows;
  }
  EXPECT_GT(n_rows, 0);
}
void check_norm(int64_t n_rows, int64_t d, Activation kind, int planes, int n_terms) {
  OpShape shape;
  shape.width = d;
  shape.makes_integers = true;
  check_rows(lower::FusionGroup::Kind::norm, shape, n_rows,
             [&](const OpRow& row) { check_norm_by(row, n_rows, d, kind, planes, n_terms); });
}

TEST(CudaFused, NormsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const int planes : {1, 2}) {
    for (const int n_terms : {1, 2, 3}) {
      for (const int64_t n_rows : {3, 257}) {
        check_norm(n_rows, 512, Activation::a256, planes, n_terms);
        check_norm(n_rows, 2048, Activation::a256, planes, n_terms);
        check_norm(n_rows, 576, Activation::a32, planes, n_terms);
      }
    }
  }
  check_norm(257, 5120, Activation::a256, 2, 2);
}

TEST(CudaFused, GatesHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const ops::ActivationFunction activation : {ops::ActivationFunction::silu, ops::ActivationFunction::gelu_tanh}) {
    for (const int planes : {1, 2}) {
      for (const int64_t k : {2304, 160}) {
        const Activation kind = k % 256 == 0 ? Activation::a256 : Activation::a32;
        const int64_t n_rows = 9;
        std::vector<float> gate = test::random_activations(n_rows * k, 7), expected(gate.size());
        const std::vector<float> up = test::random_activations(n_rows * k, 8);
        for (size_t i = 0; i < gate.size(); i += 7) gate[i] *= 40.0f;  // exponentials that underflow, or nearly
        gate[70] = std::numeric_limits<float>::quiet_NaN();
        gate[static_cast<size_t>(k) + 900 % static_cast<size_t>(k)] = -std::numeric_limits<float>::infinity();
        ops::gate_ref(activation)(gate.data(), up.data(), n_rows * k, expected.data());
        const DeviceBuffer on_gate = upload(gate), on_up = upload(up), to_y = poisoned(gate.size());
        const Integers integers(kind, planes, n_rows, k);
        gate_rows(on_gate.as<float>(), on_up.as<float>(), activation, n_rows, to_y.as<float>(), integers.view, Queue());
        EXPECT_TRUE(same_floats(download<float>(to_y.data(), gate.size()), expected)) << k;
        integers.expect(expected, "gate of " + std::to_string(k));
      }
    }
  }
}

// Heads of two sequences by turns, rotated by any numbers, and what the cache has of them; looked_at: by an observer of
// the keys.
void check_heads_by(const OpRow& by, int64_t n_tokens, int64_t head_dim, bool interleaved, bool looked_at,
                    bool normed) {
  const std::string what = std::to_string(n_tokens) + " tokens, heads of " + std::to_string(head_dim) +
                           (interleaved ? ", interleaved" : "") + (looked_at ? ", looked at" : "") +
                           (normed ? ", with norms, " : ", ") + std::string(by.name);
  constexpr int64_t kHeads = 4, kKvHeads = 2;
  const std::vector<float> q = test::random_activations(n_tokens * kHeads * head_dim, 11),
                           k = test::random_activations(n_tokens * kKvHeads * head_dim, 12),
                           v = test::random_activations(n_tokens * kKvHeads * head_dim, 13),
                           table = test::random_activations(n_tokens * head_dim, 14),
                           w = test::random_activations(head_dim, 15);
  std::vector<int32_t> positions, sequences;
  for (int32_t t = 0; t < n_tokens; ++t) positions.push_back(t / 2), sequences.push_back(t % 2);
  constexpr float kEps = 1e-5f;
  const auto rotated = [&](std::vector<float> x, int64_t n_heads) {
    std::vector<float> y(x.size());
    for (int64_t i = 0; normed && i < n_tokens * n_heads; ++i) {
      const std::vector<float> head(x.begin() + i * head_dim, x.begin() + (i + 1) * head_dim);
      ops::rms_norm_ref(head.data(), w.data(), kEps, head_dim, x.data() + i * head_dim);
    }
    for (int64_t i = 0; i < n_tokens * n_heads; ++i) {
      const float* cos = table.data() + positions[static_cast<size_t>(i / n_heads)] * head_dim;
      ops::rope_ref(x.data() + i * head_dim, cos, cos + head_dim / 2, head_dim, interleaved, head_dim,
                    y.data() + i * head_dim);
    }
    return y;
  };
  const ops::CacheLayer layer{kKvHeads, head_dim, 0};
  ops::ExecutorOptions options;
  options.n_ctx = n_tokens;
  options.n_sequences = 2;
  KvCache cache(std::span(&layer, 1), options);
  take_test_pages(cache, 2, n_tokens);
  const DeviceBuffer on_q = upload(q), on_k = upload(k), on_v = upload(v), on_table = upload(table),
                     on_positions = upload(positions), on_sequences = upload(sequences), to_q = poisoned(q.size()),
                     to_k = poisoned(k.size());
  HeadsTask task;
  task.cache = cache.layer(0);
  task.q = on_q.as<float>();
  task.k = on_k.as<float>();
  task.v = on_v.as<float>();
  task.n_tokens = n_tokens;
  task.n_heads = kHeads;
  task.rope = {kHeads, head_dim, head_dim, interleaved};
  task.table = on_table.as<float>();
  task.positions = on_positions.as<int32_t>();
  task.sequences = on_sequences.as<int32_t>();
  task.q_rotated = to_q.as<float>();
  const DeviceBuffer on_w = upload(w);
  if (normed) task.q_norm = task.k_norm = on_w.as<float>(), task.q_eps = task.k_eps = kEps;
  if (looked_at) task.k_rotated = to_k.as<float>();
  heads(by.kernel, task, Queue());
  const std::vector<float> keys = rotated(k, kKvHeads);
  EXPECT_TRUE(same_floats(download<float>(to_q.data(), q.size()), rotated(q, kHeads))) << what;
  if (looked_at) {
    EXPECT_TRUE(same_floats(download<float>(to_k.data(), k.size()), keys)) << what;
  }
  const auto row_bytes = static_cast<size_t>(ops::cache_row_bytes(ops::CacheType::f16, head_dim));
  for (const int32_t sequence : {0, 1}) {
    std::vector<std::byte> expected, found;
    for (const std::vector<float>* rows : {&keys, &v}) {
      for (int64_t row = 0; row < n_tokens * kKvHeads; ++row) {
        if (sequences[static_cast<size_t>(row / kKvHeads)] != sequence) continue;
        expected.resize(expected.size() + row_bytes);
        ops::cache_encode_ref(ops::CacheType::f16, rows->data() + row * head_dim, head_dim,
                              expected.data() + expected.size() - row_bytes);
      }
    }
    cache.visit(sequence, (n_tokens - sequence + 1) / 2,
                [&](std::span<const std::byte> bytes) { found.insert(found.end(), bytes.begin(), bytes.end()); });
    EXPECT_TRUE(found == expected) << what << ", sequence " << sequence;
  }
}

void check_heads(int64_t n_tokens, int64_t head_dim, bool interleaved, bool looked_at, bool normed) {
  OpShape shape;
  shape.is_plain = !looked_at && !normed && head_dim % 8 == 0;
  shape.is_in_lanes = !interleaved && (head_dim == 64 || head_dim == 128 || head_dim == 256);
  shape.token_elements = head_dim;
  check_rows(lower::FusionGroup::Kind::heads, shape, n_tokens,
             [&](const OpRow& row) { check_heads_by(row, n_tokens, head_dim, interleaved, looked_at, normed); });
}

TEST(CudaFused, HeadsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const bool looked_at : {false, true}) {
    for (const bool interleaved : {false, true}) {
      for (const int64_t head_dim : {64, 80, 128, 256, 36}) {
        for (const int64_t n_tokens : {1, 37, 300}) {
          for (const bool normed : {false, true}) check_heads(n_tokens, head_dim, interleaved, looked_at, normed);
        }
      }
    }
  }
}

}  // namespace
}  // namespace assay::backend::cuda
