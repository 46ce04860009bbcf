// The cache and attention over it against their references, by bits.
#include "backend/cuda/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cuda/attention/cache_test_pages.h"
#include "backend/cuda/attention/fast_attention.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/this_card.h"
#include "ops/attention/attention.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

using ops::CacheType;

struct Case {
  CacheType k, v;
  int64_t head_dim, n_heads, n_kv_heads, window;
  int64_t n_past, n_tokens;  // of each of two sequences
  float k_scale = 0.3f;      // of the keys: large ones leave probabilities that underflow
  float odd_key = 0.0f;      // unless 0, an element of the key in the middle
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "K " << static_cast<int>(c.k) << " V " << static_cast<int>(c.v) << " head " << c.head_dim << ", "
             << c.n_heads << " over " << c.n_kv_heads << ", window " << c.window << ", " << c.n_past << " + "
             << c.n_tokens;
}

struct Result {
  std::vector<float> found, expected;
};

// All tokens of both sequences are stored; the queries are the last n_tokens of each. expected: the reference's, of
// mode exact.
Result run_case(const Case& c, const AttentionRow& kernel) {
  const bool split = kernel.use == AttentionUse::alone;
  const int64_t n_sequences = 2, n_all = c.n_past + c.n_tokens, kv_width = c.n_kv_heads * c.head_dim,
                q_width = c.n_heads * c.head_dim;
  ops::ExecutorOptions options;
  options.n_ctx = n_all + 3;
  options.n_sequences = n_sequences;
  options.n_at_once = static_cast<int>(n_sequences * c.n_tokens);
  options.cache_k = c.k;
  options.cache_v = c.v;
  const ops::CacheLayer layer{c.n_kv_heads, c.head_dim, c.window};
  KvCache cache(std::span(&layer, 1), options);
  take_test_pages(cache, n_sequences, n_all);
  std::vector<float> k = test::random_activations(n_sequences * n_all * kv_width, 31);
  const std::vector<float> v = test::random_activations(n_sequences * n_all * kv_width, 32);
  for (float& x : k) x *= c.k_scale;
  if (c.odd_key != 0.0f) k[static_cast<size_t>(n_all / 2 * kv_width + 5)] = c.odd_key;
  const std::vector<float> q = test::random_activations(n_sequences * c.n_tokens * q_width, 33);
  std::vector<int32_t> positions, sequences;
  for (int64_t s = 0; s < n_sequences; ++s) {
    for (int64_t t = 0; t < n_all; ++t)
      positions.push_back(static_cast<int32_t>(t)), sequences.push_back(static_cast<int32_t>(s));
  }
  const DeviceBuffer device_k = upload(k), device_v = upload(v), device_q = upload(q),
                     device_positions = upload(positions), device_sequences = upload(sequences);
  kv_store(cache.layer(0), device_k.as<float>(), device_v.as<float>(), device_positions.as<int32_t>(),
           device_sequences.as<int32_t>(), n_sequences * n_all, nullptr);

  std::vector<TokenTile> tiles;
  const int64_t per_tile = split ? 1 : kTileTokens;
  for (int64_t s = 0; s < n_sequences; ++s) {
    for (int64_t t = 0; t < c.n_tokens; t += per_tile) {
      tiles.push_back({static_cast<int32_t>(s * c.n_tokens + t),
                       static_cast<int32_t>(std::min(per_tile, c.n_tokens - t)), static_cast<int32_t>(s),
                       static_cast<int32_t>(c.n_past + t)});
    }
  }
  const DeviceBuffer device_tiles = upload(tiles), y = poisoned(q.size());
  AttentionTask task;
  task.cache = cache.layer(0);
  task.q = device_q.as<float>();
  task.y = y.as<float>();
  task.n_heads = c.n_heads;
  task.window = c.window;
  task.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  task.tiles = device_tiles.as<TokenTile>();
  task.n_tiles = static_cast<int64_t>(tiles.size());
  for (size_t i = 0; split && i < tiles.size(); ++i) cache.place(static_cast<int64_t>(i), tiles[i].sequence);
  cache.send_tables(nullptr);
  task.n_segments = (n_all + ops::kAttentionSegment - 1) / ops::kAttentionSegment;
  const DeviceBuffer partials =
      poisoned(tiles.size() * static_cast<size_t>(c.n_heads * task.n_segments * (c.head_dim + 2)));
  task.partials = partials.as<float>();
  launch_attention(kernel, task, Queue());
  if (split) attention_merge(task, Queue());

  std::vector<float> expected(q.size());
  std::vector<std::byte> cache_bytes;
  for (int64_t s = 0; s < n_sequences; ++s) {
    std::vector<std::byte> seen;
    cache.visit(s, n_all,
                [&](std::span<const std::byte> bytes) { seen.insert(seen.end(), bytes.begin(), bytes.end()); });
    std::vector<std::byte> stored;
    const auto store = [&](const std::vector<float>& x, CacheType type, std::vector<float>& back) {
      std::vector<std::byte> row(static_cast<size_t>(ops::cache_row_bytes(type, c.head_dim)));
      for (int64_t i = 0; i < n_all * c.n_kv_heads; ++i) {
        ops::cache_encode_ref(type, x.data() + s * n_all * kv_width + i * c.head_dim, c.head_dim, row.data());
        ops::cache_decode_ref(type, row.data(), c.head_dim, back.data() + i * c.head_dim);
        stored.insert(stored.end(), row.begin(), row.end());
      }
    };
    std::vector<float> keys(static_cast<size_t>(n_all * kv_width)), values(keys.size());
    store(k, c.k, keys);
    store(v, c.v, values);
    EXPECT_TRUE(seen == stored) << c << ": the cache's bits";
    for (int64_t t = 0; t < c.n_tokens; ++t) {
      for (int64_t h = 0; h < c.n_heads; ++h) {
        const int64_t kv_head = h / (c.n_heads / c.n_kv_heads),
                      at = ((s * c.n_tokens + t) * c.n_heads + h) * c.head_dim;
        const int64_t position = c.n_past + t;
        ops::attention_ref(q.data() + at, {keys.data() + kv_head * c.head_dim, n_all, c.head_dim, kv_width},
                           {values.data() + kv_head * c.head_dim, n_all, c.head_dim, kv_width},
                           ops::first_visible(position, c.window), position, {.scale = task.scale},
                           expected.data() + at);
      }
    }
  }
  return {download<float>(y.data(), q.size()), expected};
}

// By every row of the table that takes the shape.
void check_case(const Case& c, bool split) {
  const Card card = this_card();
  int n_rows = 0;
  for (const AttentionRow& row : attention_table()) {
    if (row.use != (split ? AttentionUse::alone : AttentionUse::tiles) ||
        !row.takes({c.head_dim, c.k, c.v, false}, card))
      continue;
    const Result r = run_case(c, row);
    EXPECT_TRUE(same_floats(r.found, r.expected)) << c << ", " << row.name;
    ++n_rows;
  }
  EXPECT_GT(n_rows, 0);
}
const AttentionRow& row_of(AttentionKernel kernel) {
  return *std::ranges::find(attention_table(), kernel, &AttentionRow::kernel);
}

TEST(CudaAttention, EveryCacheTypeHasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const CacheType k : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
    for (const CacheType v : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
      check_case({k, v, 64, 6, 2, 0, 0, 40}, false);
      check_case({k, v, 64, 6, 2, 0, 300, 5}, true);
      check_case({k, v, 96, 4, 4, 200, 700, 19}, false);
      check_case({k, v, 96, 4, 4, 200, 700, 3}, true);
    }
  }
}

TEST(CudaAttention, RaggedShapesHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const bool split : {false, true}) {
    for (const CacheType type : {CacheType::f16, CacheType::f32}) {
      check_case({type, type, 20, 3, 1, 0, 0, 1}, split);
      check_case({type, type, 1, 2, 2, 0, 254, 4}, split);
      check_case({type, type, 80, 5, 5, 3, 509, 7}, split);
      check_case({type, type, 256, 4, 1, 512, 1100, 9}, split);
      check_case({type, type, 300, 2, 1, 1, 255, 3}, split);
      check_case({type, type, 512, 1, 1, 257, 1023, 2}, split);
    }
  }
}

// Queries that are alone: four, two and one head at a time, all cache types, segments and values in several goes,
// windows.
TEST(CudaAttention, QueriesAloneHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const CacheType k : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
    for (const CacheType v : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
      check_case({k, v, 64, 8, 1, 0, 30, 2}, true);
      check_case({k, v, 128, 8, 2, 0, 509, 5}, true);
      check_case({k, v, 96, 4, 2, 200, 700, 3}, true);
      check_case({k, v, 256, 4, 1, 300, 1023, 2}, true);
      check_case({k, v, 512, 2, 1, 0, 255, 2}, true);
    }
  }
  check_case({CacheType::f16, CacheType::f16, 8, 12, 3, 1, 600, 4}, true);
  check_case({CacheType::f16, CacheType::f16, 64, 2, 1, 0, 33000, 1},
             true);  // more segments than the merge takes at a time
  check_case({CacheType::q8_0, CacheType::q8_0, 64, 2, 1, 0, 66000, 1}, true);
  check_case({CacheType::f16, CacheType::f16, 72, 6, 3, 257, 900, 20}, true);
}

// As a device runs them, and by the kernel that Hopper has only for heads of 256.
TEST(CudaAttention, HeadsThatShareKeysHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  const CacheType f16 = CacheType::f16;
  std::vector<Case> cases = {{f16, f16, 256, 4, 1, 512, 300, 40}, {f16, f16, 256, 3, 3, 0, 0, 200}};
  for (const int64_t head_dim : {64, 128}) {
    cases.push_back({f16, f16, head_dim, 8, 1, 0, 0, 300});  // two groups of four; segments begin within a tile
    cases.push_back({f16, f16, head_dim, 4, 1, 0, 250, 23});
    cases.push_back(
        {f16, f16, head_dim, 10, 2, 100, 500, 33});  // a group of one head is left over; a window within a segment
    cases.push_back({f16, f16, head_dim, 3, 1, 7, 1010, 17});
    cases.push_back({f16, f16, head_dim, 8, 2, 300, 511, 1});
    cases.push_back({f16, f16, head_dim, 4, 1, 1, 255, 3});
    cases.push_back({f16, f16, head_dim, 4, 1, 0, 700, 65, 30.0f});
    cases.push_back({f16, f16, head_dim, 2, 2, 0, 100, 150});  // tiles of tokens joined, up to the end of a sequence
    cases.push_back({f16, f16, head_dim, 4, 2, 300, 511, 66});
  }
  for (const Case& c : cases) {
    check_case(c, false);
    if (c.head_dim == 256) continue;
    const Result r = run_case(c, row_of(AttentionKernel::prefill));
    EXPECT_TRUE(same_floats(r.found, r.expected)) << c << ", prefill";
  }
}

// Many tokens over the other types of cache, heads with scales that are and are not a power of two, scores that are no
// numbers.
TEST(CudaAttention, ManyTokensOverEveryCacheHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const CacheType k : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
    for (const CacheType v : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
      check_case({k, v, 64, 8, 1, 0, 200, 90}, false);
      check_case({k, v, 128, 4, 2, 150, 400, 70}, false);
    }
  }
  // So many heads that all multiprocessors have several blocks of queries: these are cut larger.
  check_case({CacheType::f16, CacheType::f16, 64, 128, 16, 0, 60, 200}, false);
  check_case({CacheType::q8_0, CacheType::f16, 128, 64, 16, 0, 60, 200}, false);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t head_dim : {64, 128}) {
    for (const float odd : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      check_case({CacheType::f16, CacheType::f16, head_dim, 8, 2, 0, 500, 40, 0.3f, odd}, false);
      check_case({CacheType::f32, CacheType::f32, head_dim, 4, 1, 64, 20, 300, 0.3f, odd}, false);
    }
  }
}

// Mode fast: the same bits in tiles and split, by however many tokens are run, and close to mode exact.
TEST(CudaAttention, FastHasTheSameBitsForEveryBatch) {
  ASSAY_REQUIRE_GPU();
  const CacheType f16 = CacheType::f16;
  for (const Case& c : {Case{f16, f16, 64, 8, 1, 0, 0, 40}, Case{f16, f16, 128, 8, 2, 0, 500, 37},
                        Case{f16, f16, 64, 6, 2, 100, 300, 19}, Case{f16, f16, 128, 3, 3, 0, 250, 9},
                        Case{f16, f16, 64, 8, 2, 300, 700, 5}}) {
    const Result tiles = run_case(c, row_of(AttentionKernel::fast_tiles)),
                 split = run_case(c, row_of(AttentionKernel::fast_alone));
    EXPECT_TRUE(same_floats(split.found, tiles.found)) << c;
    for (size_t i = 0; i < tiles.found.size(); ++i) {
      ASSERT_NEAR(tiles.found[i], tiles.expected[i], 6e-2) << c << ", element " << i;
    }
    // The last 3 tokens alone, in the tail of a tile and in one of their own.
    Case few = c;
    few.n_past += c.n_tokens - 3;
    few.n_tokens = 3;
    const Result last = run_case(few, row_of(AttentionKernel::fast_tiles));
    EXPECT_EQ(last.found.size() % 6, 0u);
  }
}

}  // namespace
}  // namespace assay::backend::cuda
