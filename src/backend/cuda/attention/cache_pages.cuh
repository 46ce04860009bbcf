// Where keys and values lie, by a sequence's table of pages, and rows of values on their way into shared memory.
#pragma once

#include "backend/cuda/attention/kv_cache.h"

namespace assay::backend::cuda {

using PageTable = std::byte* const*;

__device__ inline PageTable table_of(const CacheView& c, int64_t sequence) { return c.tables + sequence * c.n_entries; }
__device__ inline PageTable table_of_tile(const CacheView& c, int64_t i) {
  return c.alone + i * c.n_entries;
}  // of tokens that are alone
// No kernel writes tables. Volatile: asked for where it is written, ahead of a wait for the kernel before, and not
// where it is first needed.
__device__ inline std::byte* page_of(PageTable table, int64_t i_page) {
  unsigned long long page;
  asm volatile("ld.global.nc.u64 %0, [%1];" : "=l"(page) : "l"(table + i_page));
  return reinterpret_cast<std::byte*>(page);
}
__device__ inline std::byte* key_tile(const CacheView& c, PageTable table, int64_t head, int64_t tile) {
  return page_of(table, tile / kPageTiles) + c.k + head * c.k_head_bytes + tile % kPageTiles * c.k_tile_bytes;
}
// The rows of a page follow one another.
__device__ inline std::byte* value_row(const CacheView& c, PageTable table, int64_t head, int64_t position) {
  return page_of(table, position / kCachePage) + c.v + head * c.v_head_bytes + position % kCachePage * c.v_row_bytes;
}

// The pages of a segment, read together; those behind the last one in use mean nothing.
struct SegmentPages {
  static_assert(kSegmentPages == 4 && sizeof(std::byte*) == 8);
  std::byte* page[kSegmentPages];
  __device__ SegmentPages(PageTable table, int64_t segment) {
    PageTable from = table + segment * kSegmentPages;
    unsigned long long p[kSegmentPages];
    asm volatile("ld.global.nc.v2.u64 {%0, %1}, [%2];" : "=l"(p[0]), "=l"(p[1]) : "l"(from));
    asm volatile("ld.global.nc.v2.u64 {%0, %1}, [%2];" : "=l"(p[2]), "=l"(p[3]) : "l"(from + 2));
#pragma unroll
    for (int i = 0; i < kSegmentPages; ++i) page[i] = reinterpret_cast<std::byte*>(p[i]);
  }
  __device__ std::byte* of(int key) const {  // of the segment's keys
    const int i = key / kCachePage;
    return i == 0 ? page[0] : i == 1 ? page[1] : i == 2 ? page[2] : page[3];
  }
};

__device__ inline void copy_piece(const std::byte* from, std::byte* to) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
__device__ inline void end_pieces() { asm volatile("cp.async.commit_group;" : : : "memory"); }

// Rows begin .. end of a segment's values on their way into shared memory, by n_threads threads; the wait for them is
// another. at: of the head in a page.
template <int n_threads>
__device__ inline void fetch_rows(const SegmentPages& pages, int64_t at, int row_bytes, int begin, int end,
                                  std::byte* to) {
#pragma unroll 1
  for (int i = begin / kCachePage; i * kCachePage < end; ++i) {
    const int first = max(begin, i * kCachePage), n_pieces = (min(end, (i + 1) * kCachePage) - first) * row_bytes / 16;
    const std::byte* from = pages.of(i * kCachePage) + at + (first - i * kCachePage) * row_bytes;
    std::byte* page_to = to + (first - begin) * row_bytes;
    for (int piece = static_cast<int>(threadIdx.x); piece < n_pieces; piece += n_threads) {
      copy_piece(from + 16 * piece, page_to + 16 * piece);
    }
  }
  end_pieces();
}
// The same of rows of a length that is known, in few instructions: kernels that run once a token wait for their code
// more than for these.
template <int n_threads, int row_bytes>
__device__ inline void fetch_rows(const SegmentPages& pages, int64_t at, int begin, int end, std::byte* to) {
  constexpr int kInRow = row_bytes / 16, kInPage = kCachePage * kInRow, kAll = kSegmentPages * kInPage;
  static_assert(kInPage % n_threads == 0);
  const int t = static_cast<int>(threadIdx.x);
  if constexpr (kAll > 8 * n_threads) {
    if (begin > 0 || end < kSegmentPages * kCachePage)
      return fetch_rows<n_threads>(pages, at, row_bytes, begin, end, to);
  }
  const int first = begin * kInRow - t;
  const auto n = static_cast<unsigned>((end - begin) * kInRow);
  to -= first * 16;
#pragma unroll
  for (int i = 0; i < kAll; i += n_threads) {
    if (kAll > 8 * n_threads || static_cast<unsigned>(i - first) < n) {
      copy_piece(pages.page[i / kInPage] + at + (i % kInPage + t) * 16, to + i * 16);
    }
  }
  end_pieces();
}

}  // namespace assay::backend::cuda
