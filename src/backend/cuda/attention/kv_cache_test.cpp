// Pages of the cache on the device: what sequences share, what each has of its own, and pages that go to the host and
// come back.
#include "backend/cuda/attention/kv_cache.h"

#include <algorithm>
#include <map>
#include <optional>

#include "backend/cuda/attention/page_images.h"
#include "backend/cuda/runtime/device_test.h"
#include "support/random_numbers.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

constexpr int64_t kHeads = 2, kHeadDim = 32, kWidth = kHeads * kHeadDim, kLayers = 2;

// A cache and what it should hold: of each sequence the seeds of its positions' keys and values.
class CudaKvCache : public testing::Test {
 protected:
  static ops::ExecutorOptions options(ops::CacheType type, int64_t n_positions_max) {
    ops::ExecutorOptions o;
    o.n_ctx = 600;
    o.n_sequences = 4;
    o.n_positions_max = n_positions_max;
    o.cache_k = o.cache_v = type;
    return o;
  }
  void make(ops::CacheType type, int64_t n_positions_max) {
    const ops::CacheLayer layer{kHeads, kHeadDim, 0};
    const std::vector<ops::CacheLayer> layers(kLayers, layer);
    type_ = type;
    cache_.emplace(layers, options(type, n_positions_max));
    held_.clear();
  }
  static std::vector<float> row_of(int seed, int64_t layer, bool is_key) {
    return test::random_activations(kWidth, static_cast<uint64_t>(4 * seed + 2 * layer + (is_key ? 0 : 1)));
  }
  // False where pages are short.
  bool append(int sequence, int64_t n) {
    const int64_t n_pages = cache_->tables().n_needed(sequence, n);
    if (n_pages > cache_->tables().n_free()) return false;
    cache_->reserve(n_pages, nullptr);
    cache_->extend(sequence, n, nullptr);
    cache_->send_tables(nullptr);
    std::vector<int32_t> positions, sequences(static_cast<size_t>(n), sequence);
    std::vector<int>& seeds = held_[sequence];
    const size_t n_before = seeds.size();
    for (int64_t i = 0; i < n; ++i) {
      positions.push_back(static_cast<int32_t>(seeds.size()));
      seeds.push_back(++last_seed_);
    }
    const DeviceBuffer on_positions = upload(positions), on_sequences = upload(sequences);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::vector<float> k, v;
      for (size_t i = n_before; i < seeds.size(); ++i) {
        const std::vector<float> key = row_of(seeds[i], layer, true), value = row_of(seeds[i], layer, false);
        k.insert(k.end(), key.begin(), key.end()), v.insert(v.end(), value.begin(), value.end());
      }
      const DeviceBuffer on_k = upload(k), on_v = upload(v);
      kv_store(cache_->layer(layer), on_k.as<float>(), on_v.as<float>(), on_positions.as<int32_t>(),
               on_sequences.as<int32_t>(), n, nullptr);
      check(cudaDeviceSynchronize(), "storing keys");
    }
    return true;
  }
  void truncate(int sequence, int64_t n) {
    cache_->truncate(sequence, n);
    held_[sequence].resize(static_cast<size_t>(std::min<int64_t>(n, static_cast<int64_t>(held_[sequence].size()))));
  }
  void expect_held(int sequence) {
    const std::vector<int>& seeds = held_[sequence];
    std::vector<std::byte> found, expected, row(static_cast<size_t>(ops::cache_row_bytes(type_, kHeadDim)));
    cache_->visit(sequence, static_cast<int64_t>(seeds.size()),
                  [&](std::span<const std::byte> bytes) { found.insert(found.end(), bytes.begin(), bytes.end()); });
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (const bool is_key : {true, false}) {
        for (const int seed : seeds) {
          const std::vector<float> x = row_of(seed, layer, is_key);
          for (int64_t head = 0; head < kHeads; ++head) {
            ops::cache_encode_ref(type_, x.data() + head * kHeadDim, kHeadDim, row.data());
            expected.insert(expected.end(), row.begin(), row.end());
          }
        }
      }
    }
    ASSERT_EQ(cache_->tables().n_positions(sequence), static_cast<int64_t>(seeds.size()));
    EXPECT_TRUE(found == expected) << "sequence " << sequence << " of " << seeds.size() << " positions";
  }

  ops::CacheType type_ = ops::CacheType::f16;
  std::optional<KvCache> cache_;
  std::map<int, std::vector<int>> held_;
  int last_seed_ = 0;
};

TEST_F(CudaKvCache, SequencesThatShareWriteTheirOwnPages) {
  ASSAY_REQUIRE_GPU();
  for (const ops::CacheType type : {ops::CacheType::f16, ops::CacheType::f32, ops::CacheType::q8_0}) {
    make(type, 0);
    ASSERT_TRUE(append(0, 150));
    cache_->reserve(1, nullptr);
    cache_->fork(0, 100, 1, nullptr);  // a page shared, a part of one copied
    held_[1].assign(held_[0].begin(), held_[0].begin() + 100);
    cache_->fork(0, 128, 2, nullptr);
    held_[2].assign(held_[0].begin(), held_[0].begin() + 128);
    ASSERT_TRUE(append(1, 70));
    truncate(2, 90);  // the last page is shared, and copied before it is written
    ASSERT_TRUE(append(2, 5));
    ASSERT_TRUE(append(0, 1));
    for (const int s : {0, 1, 2}) expect_held(s);
    truncate(0, 0);
    ASSERT_TRUE(append(3, 200));  // in pages that were sequence 0's
    for (const int s : {1, 2, 3}) expect_held(s);
  }
}

TEST_F(CudaKvCache, AnyOrderOfOperationsUnderWantOfPages) {
  ASSAY_REQUIRE_GPU();
  make(ops::CacheType::f16, 12 * kCachePage);
  test::Random random(3);
  for (int i = 0; i < 150; ++i) {
    const int sequence = random.below(4), what = random.below(8);
    const auto n = static_cast<int64_t>(held_[sequence].size());
    if (what < 4) {
      append(sequence, std::min<int64_t>(1 + random.below(120), 600 - n));
    } else if (what < 6) {
      truncate(sequence, random.below(static_cast<int>(n) + 1));
    } else {
      const int from = random.below(4);
      const int64_t n_shared = random.below(static_cast<int>(held_[from].size()) + 1);
      if (from == sequence) continue;
      truncate(sequence, 0);
      if (cache_->tables().n_free() == 0) continue;
      cache_->reserve(1, nullptr);
      cache_->fork(from, n_shared, sequence, nullptr);
      held_[sequence].assign(held_[from].begin(), held_[from].begin() + n_shared);
    }
    for (int s = 0; i % 10 == 9 && s < 4; ++s) expect_held(s);
    if (HasFailure()) return;
  }
  for (int s = 0; s < 4; ++s) truncate(s, 0);
  EXPECT_EQ(cache_->tables().n_free(), 12);
}

TEST_F(CudaKvCache, PagesGoToTheHostAndComeBack) {
  ASSAY_REQUIRE_GPU();
  make(ops::CacheType::q8_0, 0);
  ASSERT_TRUE(append(0, 200));
  std::vector<std::vector<std::byte>> kept;
  base::PendingCopies read, written;
  PageImages images(*cache_, nullptr);
  for (int64_t i = 0; i < 4; ++i) {
    kept.emplace_back(cache_->page_bytes());
    images.copies().read(cache_->tables().page(0, i), kept.back(), read);
  }
  const std::vector<int> seeds = held_[0];
  truncate(0, 0);
  EXPECT_EQ(cache_->tables().n_ready(), cache_->tables().n_free() - 4);
  ASSERT_TRUE(append(3, 100));  // beside what leaves
  ASSERT_TRUE(read.wait());
  images.copies().finish();
  ASSERT_TRUE(append(1, 300));  // over all of it
  cache_->reserve(4, nullptr);
  cache_->extend(2, 200, nullptr);
  for (int64_t i = 0; i < 4; ++i) {
    images.copies().write(kept[static_cast<size_t>(i)], cache_->tables().page(2, i), written);
  }
  images.copies().make_ready(2);
  held_[2] = seeds;
  for (const int s : {1, 2, 3}) expect_held(s);
}

// Memory comes with the positions, not with the context.
TEST_F(CudaKvCache, MemoryIsTakenWhereItIsNeeded) {
  ASSAY_REQUIRE_GPU();
  const ops::CacheLayer layer{8, 128, 0};
  const std::vector<ops::CacheLayer> layers(32, layer);
  ops::ExecutorOptions o;
  o.n_ctx = 8192;
  o.n_sequences = 4;
  KvCache cache(layers, o);
  EXPECT_EQ(cache.page_bytes(), size_t{32} * 2 * 8 * 128 * 2 * kCachePage);
  EXPECT_EQ(cache.bytes_taken(), 0u);
  EXPECT_GT(cache.bytes(), size_t{4} << 30);
  cache.reserve(1, nullptr);
  cache.extend(3, 10, nullptr);
  EXPECT_EQ(cache.bytes_taken(), size_t{256} << 20);
  cache.reserve(64, nullptr);
  cache.extend(0, 4096, nullptr);
  EXPECT_EQ(cache.bytes_taken(), size_t{768} << 20);  // for 65 pages of 8 MiB
}

}  // namespace
}  // namespace assay::backend::cuda
