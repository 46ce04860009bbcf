// How keys and values come to the warps that multiply, in attention of many tokens on Hopper: a ring of stages in
// shared memory, and the warps that fill it with floats from any type of cache.
#pragma once

#include "backend/cuda/attention/attention_parts.cuh"
#include "backend/cuda/attention/cache_pages.cuh"
#include "backend/cuda/attention/cache_pieces.cuh"
#include "backend/cuda/tiles/wgmma_steps.cuh"

namespace assay::backend::cuda {

inline constexpr int kFeeders = 4;  // warps

// Registers of a thread where eight warps have queries; four have more than enough.
inline constexpr int kFeederRegisters = 56, kRowRegisters = 224;

// How a kernel is cut: warps that have queries, the ring.
template <int head_dim, int n_warps, int n_stages, int stage_floats>
struct PrefillCut {
  static constexpr int kHeadDim = head_dim, kWarps = n_warps, kStages = n_stages, kStageFloats = stage_floats;
  static constexpr int kThreads = 32 * (kWarps + kFeeders), kQueries = kWarps * kWarpQueries;
  static constexpr int kElements = kStageFloats / kSegment;   // of all keys of a segment, in a stage
  static constexpr int kStageKeys = kStageFloats / kHeadDim;  // whose values are a stage
  static constexpr int kColumns = kHeadDim / kGroupKeys;      // fours of columns of a lane
  static constexpr int kWarpFloats = kWarpProbabilities + kWarpQueries * kHeadDim;
  static constexpr size_t kBytes =
      sizeof(float) * (kWarps * kWarpFloats + kStages * kStageFloats) + 2 * sizeof(uint64_t) * kStages;
};

// The positions of a segment that any token of a tile sees, from a whole group of keys on.
struct SegmentSpan {
  int begin, end, n_groups;
  __device__ SegmentSpan(const TokenTile& tile, int64_t window, int segment)
      : begin(max(static_cast<int>(ops::first_visible(tile.position, window)), segment * kSegment) / kGroupKeys *
              kGroupKeys),
        end(min(tile.position + tile.n, (segment + 1) * kSegment)),
        n_groups((end - begin + kGroupKeys - 1) / kGroupKeys) {}
};
__device__ inline int first_segment(const TokenTile& tile, int64_t window) {
  return static_cast<int>(ops::first_visible(tile.position, window)) / kSegment;
}
__device__ inline int last_segment(const TokenTile& tile) { return (tile.position + tile.n - 1) / kSegment; }

// The stages, which feeders fill and warps of queries empty in the same order. Of a segment first all keys, kElements
// elements at a time, then the values.
template <class C>
class StageRing {
 public:
  __device__ explicit StageRing(float* stages)
      : stages_(stages),
        barriers_(static_cast<uint32_t>(__cvta_generic_to_shared(stages + C::kStages * C::kStageFloats))) {}
  __device__ void make() const {
    for (int i = 0; i < C::kStages; ++i) make_barrier(full(i), kFeeders), make_barrier(empty(i), C::kWarps);
    barriers_made();
  }
  __device__ float* stage() const { return stages_ + slot_ * C::kStageFloats; }
  __device__ void wait_full() const { wait_phase(full(slot_), round_ & 1); }
  __device__ void wait_empty() const { wait_phase(empty(slot_), (round_ & 1) ^ 1); }
  // By a whole warp, when it has written or read the stage.
  __device__ void filled() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(full(slot_));
  }
  __device__ void emptied() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty(slot_));
  }
  __device__ void next() {
    if (++slot_ == C::kStages) slot_ = 0, ++round_;
  }

 private:
  __device__ uint32_t full(int i) const { return barriers_ + 16 * static_cast<uint32_t>(i); }
  __device__ uint32_t empty(int i) const { return full(i) + 8; }

  float* stages_;
  uint32_t barriers_;
  int slot_ = 0;
  uint32_t round_ = 0;
};

// What is read from the cache at once, of a key or of a value, widened one by one: as floats all of it would be worth
// too many registers.
template <ops::CacheType type>
struct CacheElements;
template <>
struct CacheElements<ops::CacheType::f16> {
  static constexpr int kN = 8;
  uint4 halves;
  __device__ void load(const std::byte* at, const std::byte*) { halves = *reinterpret_cast<const uint4*>(at); }
  __device__ float operator[](int i) const {
    return half_of(i < 2 ? halves.x : i < 4 ? halves.y : i < 6 ? halves.z : halves.w, i % 2);
  }
};
template <>
struct CacheElements<ops::CacheType::f32> {
  static constexpr int kN = 4;
  float4 x;
  __device__ void load(const std::byte* at, const std::byte*) { x = *reinterpret_cast<const float4*>(at); }
  __device__ float operator[](int i) const { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }
};
template <>
struct CacheElements<ops::CacheType::q8_0> {
  static constexpr int kN = 8;
  uint2 bytes;
  float scale;
  __device__ void load(const std::byte* at, const std::byte* scale_at) {
    bytes = *reinterpret_cast<const uint2*>(at);
    scale = __half2float(*reinterpret_cast<const __half*>(scale_at));
  }
  __device__ float operator[](int i) const { return scale * byte_of(i < 4 ? bytes.x : bytes.y, i % 4); }
};
__host__ __device__ constexpr int bytes_of(ops::CacheType type) {
  return type == ops::CacheType::f32 ? 4 : type == ops::CacheType::f16 ? 2 : 1;
}

// One warp of the feeders, which share each stage: of keys it has a group, of values every fourth run of pieces. What
// it reads is on its way while the stage is still in use.
template <class C>
class StageFeeder {
 public:
  __device__ StageFeeder(const AttentionTask& task, const StageRing<C>& ring)
      : task_(task), ring_(ring), lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32 % kFeeders) {}

  __device__ void run(const QueryBlock& place) {
    const TokenTile& tile = place.tile;
    table_ = table_of(task_.cache, tile.sequence), kv_head_ = static_cast<int>(place.kv_head);
    const int last = last_segment(tile);
    for (int segment = first_segment(tile, task_.window); segment <= last; ++segment) {
      const SegmentSpan span(tile, task_.window, segment);
      switch (task_.cache.type_k) {
        case ops::CacheType::f16: fill_keys<ops::CacheType::f16>(span); break;
        case ops::CacheType::f32: fill_keys<ops::CacheType::f32>(span); break;
        case ops::CacheType::q8_0: fill_keys<ops::CacheType::q8_0>(span); break;
      }
      switch (task_.cache.type_v) {
        case ops::CacheType::f16: fill_values<ops::CacheType::f16>(span); break;
        case ops::CacheType::f32: fill_values<ops::CacheType::f32>(span); break;
        case ops::CacheType::q8_0: fill_values<ops::CacheType::q8_0>(span); break;
      }
    }
  }

 private:
  // [element][group][16][4], key 64 group + 16 c + l as c of l. A lane has 4 keys and a few elements at a time.
  // Positions that nobody sees are read as others.
  template <ops::CacheType type>
  __device__ void fill_keys(const SegmentSpan& span) {
    using E = CacheElements<type>;
    constexpr int kElementBytes = bytes_of(type) * kKeyTile, kHalf = 16 * kPieceBytes;
    static_assert(C::kElements % (2 * E::kN) == 0 && 32 % C::kElements == 0);
    const int l = lane_ % 16, side = lane_ / 16 * E::kN, at = side * bytes_of(type);
    const int tile = span.begin / kKeyTile + 2 * warp_, last = (span.end - 1) / kKeyTile;
    const std::byte* first_tile = key_tile(task_.cache, table_, kv_head_, min(tile, last));
    const std::byte* second_tile = key_tile(task_.cache, table_, kv_head_, min(tile + 1, last));
    const int offset = (at / kPieceBytes * kKeyTile + l) * kPieceBytes + at % kPieceBytes,
              scale_offset = C::kHeadDim * kKeyTile + l * 2;
#pragma unroll 1
    for (int first = 0; first < C::kHeadDim; first += C::kElements) {
      const int from = offset + first * kElementBytes, scales = scale_offset + first / 32 * (2 * kKeyTile);
#pragma unroll
      for (int j = 0; j < C::kElements; j += 2 * E::kN) {
        E x[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const std::byte* of_tile = c < 2 ? first_tile : second_tile;
          x[c].load(of_tile + from + j * kElementBytes + c % 2 * kHalf, of_tile + scales + c % 2 * 32);
        }
        if (j == 0) ring_.wait_empty();
        auto* own = reinterpret_cast<float4*>(ring_.stage() + (j + side) * kSegment + warp_ * kGroupKeys + 4 * l);
#pragma unroll
        for (int e = 0; e < E::kN; ++e) own[e * kSegment / 4] = {x[0][e], x[1][e], x[2][e], x[3][e]};
      }
      ring_.filled();
      ring_.next();
    }
  }

  // Rows one behind the other, of one page or two; those that nobody sees are not read.
  template <ops::CacheType type>
  __device__ void fill_values(const SegmentSpan& span) {
    using E = CacheElements<type>;
    constexpr int kInRow = C::kHeadDim / E::kN, kInStage = C::kStageKeys * kInRow, kAtOnce = 4, kStep = 32 * kFeeders;
    constexpr int kPages = C::kStageKeys > kCachePage ? C::kStageKeys / kCachePage : 1,
                  kInPage = kCachePage * kInRow;  // of a stage; pieces
    static_assert(kInStage % (kAtOnce * kStep) == 0 && kInPage % kStep == 0 && kCachePage % kGroupKeys == 0);
    static_assert(C::kStageKeys % kCachePage == 0 || kCachePage % C::kStageKeys == 0);
    const auto row_bytes = static_cast<int>(task_.cache.v_row_bytes);
    const int own = 32 * warp_ + lane_;
#pragma unroll 1
    for (int first = span.begin; first < span.end; first += C::kStageKeys) {
      const int n = (min(first + C::kStageKeys, span.end) - first) * kInRow - own;
      const std::byte* of_pages[kPages];
#pragma unroll
      for (int page = 0; page < kPages; ++page) {
        const int of_page =
            page == 0 ? first : min(first + page * kCachePage, (span.end - 1) / kCachePage * kCachePage);
        of_pages[page] = value_row(task_.cache, table_, kv_head_, of_page) - page * kCachePage * row_bytes;
      }
#pragma unroll
      for (int i = 0; i < kInStage; i += kAtOnce * kStep) {
        E x[kAtOnce];
#pragma unroll
        for (int c = 0; c < kAtOnce; ++c) {
          const int piece = i + c * kStep, row = (own + piece) / kInRow, j = (own + piece) % kInRow * E::kN;
          const std::byte* from = of_pages[piece / kInPage];
          const std::byte* of_row = from + row * row_bytes;
          const std::byte* at =
              type == ops::CacheType::q8_0 ? of_row + j : from + (own + piece) * (E::kN * bytes_of(type));
          if (piece < n) x[c].load(at, of_row + C::kHeadDim + j / 32 * 2);
        }
        if (i == 0) ring_.wait_empty();
        auto* to = reinterpret_cast<float4*>(ring_.stage() + own * E::kN);
#pragma unroll
        for (int c = 0; c < kAtOnce; ++c) {
          if (i + c * kStep >= n) break;
#pragma unroll
          for (int e = 0; e < E::kN; e += 4)
            to[((i + c * kStep) * E::kN + e) / 4] = {x[c][e], x[c][e + 1], x[c][e + 2], x[c][e + 3]};
        }
      }
      ring_.filled();
      ring_.next();
    }
  }

  const AttentionTask& task_;
  StageRing<C> ring_;
  const int lane_, warp_;
  PageTable table_ = nullptr;
  int kv_head_ = 0;
};

}  // namespace assay::backend::cuda
