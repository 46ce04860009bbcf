// Attention of one token as decode runs it: norm and rotation of the heads, their place in the cache and attention
// itself in one kernel, against the references of the single ops, by bits.
#include "backend/cuda/attention/decode_attention.h"

#include <cmath>

#include "backend/cuda/attention/cache_test_pages.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/this_card.h"
#include "ops/attention/attention.h"
#include "ops/attention/rope.h"
#include "ops/rows/rms_norm.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

using ops::CacheType;

struct Case {
  CacheType type_k, type_v;
  int64_t head_dim, n_heads, n_kv_heads, n_past;
  int64_t window = 0, rope_dim = 0;
  bool interleaved = true, norms = false, observed = false;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "K " << static_cast<int>(c.type_k) << " V " << static_cast<int>(c.type_v) << ", heads of " << c.head_dim
             << ", " << c.n_heads << " over " << c.n_kv_heads << " after " << c.n_past << ", window " << c.window
             << ", rotated " << c.rope_dim << (c.interleaved ? " in pairs" : " in halves") << (c.norms ? ", norms" : "")
             << (c.observed ? ", observed" : "");
}

// Heads after the norm (if there is one) and the rotation.
struct Heads {
  std::vector<float> normed, rotated;
  Heads(const Case& c, const std::vector<float>& x, const std::vector<float>& w, float eps,
        const std::vector<float>& angles)
      : normed(x), rotated(x.size()) {
    for (size_t i = 0; i < x.size(); i += static_cast<size_t>(c.head_dim)) {
      if (c.norms) ops::rms_norm_ref(x.data() + i, w.data(), eps, c.head_dim, normed.data() + i);
      ops::rope_ref(normed.data() + i, angles.data(), angles.data() + c.rope_dim / 2, c.rope_dim, c.interleaved,
                    c.head_dim, rotated.data() + i);
    }
  }
};

ops::RopeSpec rope_of(const Case& c) {
  ops::RopeSpec rope{c.rope_dim, c.interleaved, {}, 1.0};
  for (int64_t i = 0; i < c.rope_dim / 2; ++i) {
    rope.inverse_frequency.push_back(std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(c.rope_dim)));
  }
  return rope;
}

// The cache's bytes: all keys, then all values.
std::vector<std::byte> stored_by(const Case& c, const std::vector<float>& keys, const std::vector<float>& values) {
  std::vector<std::byte> stored;
  for (const auto& [type, x] : {std::pair{c.type_k, &keys}, std::pair{c.type_v, &values}}) {
    std::vector<std::byte> row(static_cast<size_t>(ops::cache_row_bytes(type, c.head_dim)));
    for (size_t i = 0; i < x->size(); i += static_cast<size_t>(c.head_dim)) {
      ops::cache_encode_ref(type, x->data() + i, c.head_dim, row.data());
      stored.insert(stored.end(), row.begin(), row.end());
    }
  }
  return stored;
}

std::vector<float> attended_by(const Case& c, const std::vector<float>& q, const std::vector<float>& keys,
                               const std::vector<float>& values, float scale) {
  const int64_t n = c.n_past + 1, kv_width = c.n_kv_heads * c.head_dim;
  std::vector<float> y(q.size());
  for (int64_t h = 0; h < c.n_heads; ++h) {
    const int64_t kv = h / (c.n_heads / c.n_kv_heads) * c.head_dim;
    ops::attention_ref(q.data() + h * c.head_dim, {keys.data() + kv, n, c.head_dim, kv_width},
                       {values.data() + kv, n, c.head_dim, kv_width}, ops::first_visible(c.n_past, c.window), c.n_past,
                       {.scale = scale}, y.data() + h * c.head_dim);
  }
  return y;
}

void check_case(const Case& c) {
  constexpr int64_t kSequence = 1;
  constexpr float kEpsQ = 1e-5f, kEpsK = 1e-6f;
  const int64_t n = c.n_past + 1, kv_width = c.n_kv_heads * c.head_dim, q_width = c.n_heads * c.head_dim;
  ops::ExecutorOptions options;
  options.n_ctx = n + 2, options.n_sequences = 2;
  options.cache_k = c.type_k, options.cache_v = c.type_v;
  const ops::CacheLayer layer{c.n_kv_heads, c.head_dim, c.window};
  KvCache cache(std::span(&layer, 1), options);
  take_test_pages(cache, options.n_sequences, n);
  cache.place(0, kSequence), cache.send_tables(nullptr);

  const ops::RopeSpec rope = rope_of(c);
  std::vector<float> table(static_cast<size_t>(n * c.rope_dim + 1)), angles(static_cast<size_t>(c.rope_dim));
  for (int64_t p = 0; p < n; ++p)
    ops::rope_angles(rope, p, table.data() + p * c.rope_dim, table.data() + p * c.rope_dim + c.rope_dim / 2);
  ops::rope_angles(rope, c.n_past, angles.data(), angles.data() + c.rope_dim / 2);

  std::vector<float> k_past = test::random_activations(c.n_past * kv_width, 51),
                     v_past = test::random_activations(c.n_past * kv_width, 52);
  for (float& x : k_past) x *= 0.3f;
  const std::vector<float> q = test::random_activations(q_width, 53), k = test::random_activations(kv_width, 54);
  const std::vector<float> v = test::random_activations(kv_width, 55);
  const std::vector<float> w_q = test::random_activations(c.head_dim, 56),
                           w_k = test::random_activations(c.head_dim, 57);
  std::vector<int32_t> positions, sequences(static_cast<size_t>(n), kSequence);
  for (int64_t t = 0; t < n; ++t) positions.push_back(static_cast<int32_t>(t));
  const DeviceBuffer device_positions = upload(positions), device_sequences = upload(sequences),
                     device_table = upload(table);
  if (c.n_past > 0) {
    const DeviceBuffer past_k = upload(k_past), past_v = upload(v_past);
    kv_store(cache.layer(0), past_k.as<float>(), past_v.as<float>(), device_positions.as<int32_t>(),
             device_sequences.as<int32_t>(), c.n_past, nullptr);
    check(cudaDeviceSynchronize(), "storing keys");
  }

  const DeviceBuffer device_q = upload(q), device_k = upload(k), device_v = upload(v), device_w_q = upload(w_q),
                     device_w_k = upload(w_k);
  const DeviceBuffer q_normed = poisoned(q.size()), k_normed = poisoned(k.size()), q_rotated = poisoned(q.size()),
                     k_rotated = poisoned(k.size());
  DecodeAttention task;
  task.heads.cache = cache.layer(0);
  task.heads.q = device_q.as<float>();
  task.heads.k = device_k.as<float>();
  task.heads.v = device_v.as<float>();
  if (c.norms) {
    task.heads.q_norm = device_w_q.as<float>();
    task.heads.k_norm = device_w_k.as<float>();
    task.heads.q_eps = kEpsQ;
    task.heads.k_eps = kEpsK;
  }
  task.heads.n_tokens = 1;
  task.heads.n_heads = c.n_heads;
  task.heads.rope = {c.n_heads, c.head_dim, c.rope_dim, c.interleaved};
  task.heads.table = device_table.as<float>();
  task.heads.positions = device_positions.as<int32_t>() + c.n_past;
  task.heads.sequences = device_sequences.as<int32_t>() + c.n_past;
  if (c.observed) {
    if (c.norms) task.heads.q_normed = q_normed.as<float>(), task.heads.k_normed = k_normed.as<float>();
    task.heads.q_rotated = q_rotated.as<float>(), task.heads.k_rotated = k_rotated.as<float>();
  }
  const DeviceBuffer y = poisoned(q.size()), arrived = upload(std::vector<uint32_t>(static_cast<size_t>(c.n_heads), 0));
  task.y = y.as<float>();
  task.window = c.window;
  task.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  // One more than there are, as in a graph for several lengths.
  task.n_segments = (n + ops::kAttentionSegment - 1) / ops::kAttentionSegment + 1;
  const DeviceBuffer partials = poisoned(static_cast<size_t>(c.n_heads * task.n_segments * (c.head_dim + 2)));
  task.partials = partials.as<float>();
  task.arrived = arrived.as<uint32_t>();

  const Heads heads_q(c, q, w_q, kEpsQ, angles), heads_k(c, k, w_k, kEpsK, angles);
  std::vector<float> keys = k_past, values = v_past;
  keys.insert(keys.end(), heads_k.rotated.begin(), heads_k.rotated.end());
  values.insert(values.end(), v.begin(), v.end());
  const std::vector<std::byte> stored = stored_by(c, keys, values);
  keys = as_cached(c.type_k, keys, c.head_dim), values = as_cached(c.type_v, values, c.head_dim);
  const std::vector<float> expected = attended_by(c, heads_q.rotated, keys, values, task.scale);
  // By every row that takes the shape, for however many segments; the next run finds the counters as the first did.
  const AttentionShape shape{c.head_dim, c.type_k, c.type_v, false, c.n_heads, c.n_kv_heads};
  int n_rows = 0;
  for (const AttentionRow& row : attention_table()) {
    if (row.use != AttentionUse::one_token || !row.takes(shape, this_card())) continue;
    ++n_rows;
    decode_attention(row.kernel, task, Queue());
    EXPECT_TRUE(same_floats(download<float>(y.data(), expected.size()), expected)) << c << ", " << row.name;
    std::vector<std::byte> seen;
    const auto see = [&](std::span<const std::byte> bytes) { seen.insert(seen.end(), bytes.begin(), bytes.end()); };
    cache.visit(kSequence, n, see);
    EXPECT_TRUE(seen == stored) << c << ": the cache's bits";
    if (!c.observed) continue;
    EXPECT_TRUE(same_floats(download<float>(q_rotated.data(), q.size()), heads_q.rotated)) << c;
    EXPECT_TRUE(same_floats(download<float>(k_rotated.data(), k.size()), heads_k.rotated)) << c;
    if (!c.norms) continue;
    EXPECT_TRUE(same_floats(download<float>(q_normed.data(), q.size()), heads_q.normed)) << c;
    EXPECT_TRUE(same_floats(download<float>(k_normed.data(), k.size()), heads_k.normed)) << c;
  }
  EXPECT_GT(n_rows, 0) << c;
}

TEST(CudaDecodeAttention, HeadsOf64And128OverHalfPrecision) {
  ASSAY_REQUIRE_GPU();
  constexpr CacheType kHalf = CacheType::f16;
  for (const int64_t n_past : {0, 1, 15, 16, 17, 31, 100, 255, 256, 700, 8200}) {
    check_case({kHalf, kHalf, 64, 8, 1, n_past, 0, 64, true});
    check_case({kHalf, kHalf, 128, 4, 1, n_past, 0, 128, false});
    if (HasFailure()) return;
  }
  for (const int64_t head_dim : {64, 128}) {
    for (const bool interleaved : {false, true}) {
      for (const int64_t rope_dim : {int64_t{0}, int64_t{24}, head_dim}) {
        check_case({kHalf, kHalf, head_dim, 8, 2, 300, 270, rope_dim, interleaved, true, true});
        check_case({kHalf, kHalf, head_dim, 3, 3, 40, 21, rope_dim, interleaved, false, true});
        check_case({kHalf, kHalf, head_dim, 4, 1, 1030, 1, rope_dim, interleaved, true, false});
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CudaDecodeAttention, OtherHeadsAndCaches) {
  ASSAY_REQUIRE_GPU();
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::q8_0}) {
    for (const int64_t head_dim : {32, 96, 256}) {
      check_case({type, type, head_dim, 4, 1, 70, 0, head_dim, true, true, true});
      check_case({type, CacheType::f16, head_dim, 8, 2, 600, 300, head_dim / 2, false, false, true});
    }
    check_case({type, CacheType::f16, 64, 4, 1, 5200, 0, 64, true});
    if (HasFailure()) return;
  }
  check_case({CacheType::f32, CacheType::f32, 512, 4, 1, 2600, 0, 512, false});
}

}  // namespace
}  // namespace assay::backend::cuda
