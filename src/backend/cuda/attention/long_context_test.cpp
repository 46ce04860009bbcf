// Attention of one token over contexts of up to 131,072 positions, as decode runs it: the heads are made, the new key
// and value stored and the segments merged in the same kernels. Mode exact against the reference, mode fast against its
// own kernel for many tokens, by bits.
#include <cmath>

#include "backend/cuda/attention/cache_test_pages.h"
#include "backend/cuda/attention/decode_attention.h"
#include "backend/cuda/attention/fast_attention.h"
#include "backend/cuda/decode/fast_decode.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/this_card.h"
#include "ops/attention/attention.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

using ops::CacheType;

struct Case {
  CacheType k, v;
  int64_t head_dim, n_heads, n_kv_heads, window, n_past;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "K " << static_cast<int>(c.k) << " V " << static_cast<int>(c.v) << ", heads of " << c.head_dim << ", "
             << c.n_heads << " over " << c.n_kv_heads << ", window " << c.window << ", after " << c.n_past;
}

// A cache with n_past positions, and the token after them.
struct Context {
  explicit Context(const Case& of)
      : c(of), layer{c.n_kv_heads, c.head_dim, c.window}, cache(std::span(&layer, 1), options()) {
    const int64_t n_all = c.n_past + 1, kv_width = c.n_kv_heads * c.head_dim;
    take_test_pages(cache, 1, n_all);
    cache.place(0, 0);
    cache.send_tables(nullptr);
    k = test::random_activations(n_all * kv_width, 41);
    v = test::random_activations(n_all * kv_width, 42);
    q = test::random_activations(c.n_heads * c.head_dim, 43);
    for (float& x : k) x *= 0.3f;
    device_k = upload(k), device_v = upload(v), device_q = upload(q);
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < n_all; ++t) positions.push_back(static_cast<int32_t>(t));
    device_positions = upload(positions);
    zeros = upload(std::vector<int32_t>(positions.size(), 0));
    kv_store(cache.layer(0), device_k.as<float>(), device_v.as<float>(), device_positions.as<int32_t>(),
             zeros.as<int32_t>(), c.n_past, nullptr);
    check(cudaDeviceSynchronize(), "storing keys");
    n_segments = (n_all + ops::kAttentionSegment - 1) / ops::kAttentionSegment;
    partials = poisoned(static_cast<size_t>(c.n_heads * n_segments * (c.head_dim + 2)));
    y = poisoned(q.size());
  }
  ops::ExecutorOptions options() const {
    ops::ExecutorOptions o;
    o.n_ctx = c.n_past + 1;
    o.cache_k = c.k;
    o.cache_v = c.v;
    return o;
  }
  HeadsTask heads() const {
    HeadsTask task;
    task.cache = cache.layer(0);
    task.q = device_q.as<float>();
    task.k = device_k.as<float>() + c.n_past * c.n_kv_heads * c.head_dim;
    task.v = device_v.as<float>() + c.n_past * c.n_kv_heads * c.head_dim;
    task.n_tokens = 1;
    task.n_heads = c.n_heads;
    task.rope = {c.n_heads, c.head_dim, 0, false};
    task.table = device_q.as<float>();  // rotations of no element
    task.positions = device_positions.as<int32_t>() + c.n_past;
    task.sequences = zeros.as<int32_t>();
    return task;
  }
  AttentionTask attention(const DeviceBuffer& tile) const {
    AttentionTask task;
    task.cache = cache.layer(0);
    task.q = device_q.as<float>();
    task.y = y.as<float>();
    task.n_heads = c.n_heads;
    task.window = c.window;
    task.scale = scale();
    task.tiles = tile.as<TokenTile>();
    task.n_tiles = 1;
    task.n_segments = n_segments;
    task.partials = partials.as<float>();
    return task;
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(c.head_dim)); }

  const Case c;
  const ops::CacheLayer layer;
  KvCache cache;
  std::vector<float> k, v, q;
  DeviceBuffer device_k, device_v, device_q, device_positions, zeros, partials, y;
  int64_t n_segments = 0;
};

void check_exact(const Case& c) {
  const Context context(c);
  const DeviceBuffer arrived = upload(std::vector<uint32_t>(static_cast<size_t>(c.n_heads), 0));
  DecodeAttention task;
  task.heads = context.heads();
  task.y = context.y.as<float>();
  task.window = c.window;
  task.scale = context.scale();
  task.n_segments = context.n_segments;
  task.partials = context.partials.as<float>();
  task.arrived = arrived.as<uint32_t>();
  const AttentionChoice choice({c.head_dim, c.k, c.v, false, c.n_heads, c.n_kv_heads}, this_card());
  decode_attention(choice.one_token.at(context.n_segments).kernel, task, Queue());
  const std::vector<float> keys = as_cached(c.k, context.k, c.head_dim), values = as_cached(c.v, context.v, c.head_dim);
  std::vector<float> expected(context.q.size());
  for (int64_t h = 0; h < c.n_heads; ++h) {
    const int64_t kv = h / (c.n_heads / c.n_kv_heads) * c.head_dim, width = c.n_kv_heads * c.head_dim, n = c.n_past + 1;
    ops::attention_ref(context.q.data() + h * c.head_dim, {keys.data() + kv, n, c.head_dim, width},
                       {values.data() + kv, n, c.head_dim, width}, ops::first_visible(c.n_past, c.window), c.n_past,
                       {.scale = context.scale()}, expected.data() + h * c.head_dim);
  }
  EXPECT_TRUE(same_floats(download<float>(context.y.data(), expected.size()), expected)) << c;
}

void check_fast(const Case& c) {
  const Context context(c);
  const DeviceBuffer tile = upload(std::vector<TokenTile>{{0, 1, 0, static_cast<int32_t>(c.n_past)}});
  const AttentionTask task = context.attention(tile);
  fast_decode_attention(task, context.heads(), Queue());
  if (task.n_segments > 1) attention_merge(task, Queue());
  const std::vector<float> alone = download<float>(context.y.data(), context.q.size());
  fast_attention_tiles(task, Queue());
  EXPECT_TRUE(same_floats(alone, download<float>(context.y.data(), context.q.size()))) << c;
}

class CudaLongContext : public testing::TestWithParam<int64_t> {};

TEST_P(CudaLongContext, DecodeHasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const CacheType type : {CacheType::f16, CacheType::q8_0}) check_exact({type, type, 64, 8, 2, 0, GetParam()});
  check_exact({CacheType::f16, CacheType::f16, 128, 2, 1, 1000, GetParam()});
}

TEST_P(CudaLongContext, FastDecodeHasTheBitsOfManyTokens) {
  ASSAY_REQUIRE_GPU();
  check_fast({CacheType::f16, CacheType::f16, 64, 8, 1, 0, GetParam()});
  check_fast({CacheType::f16, CacheType::f16, 128, 6, 1, 0, GetParam()});
  check_fast({CacheType::f16, CacheType::f16, 128, 3, 3, 300, GetParam()});
}

INSTANTIATE_TEST_SUITE_P(After, CudaLongContext, testing::Values(0, 1, 63, 64, 255, 256, 700, 33000, 70000, 131071),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace assay::backend::cuda
