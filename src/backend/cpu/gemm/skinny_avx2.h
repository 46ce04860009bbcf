// The AVX2 tiles of the matrix-matrix kernels (gemm_avx2.h) in the loops for few tokens. Included by kernel files only;
// everything here is local to the file that includes it.
#pragma once

#include "backend/cpu/gemm/gemm_avx2.h"
#include "backend/cpu/gemm/skinny_loops.h"

namespace assay::backend::cpu {
namespace {

// Kernel<n>: the same class of gemm_avx2.h for tiles of n tokens.
template <template <int> class Kernel, int kTokensMax>
struct SkinnyOfTiles {
  using Largest = Kernel<kTokensMax>;
  static constexpr int64_t kStripRows = cpu::kStripRows, kBlock = Largest::kBlock, kBlocksNear = kBlock == 256 ? 1 : 8;
  static constexpr int kTokens = kTokensMax;
  struct alignas(64) Panel {
    std::byte bytes[Largest::kStripBytes];
  };
  struct alignas(32) Side {
    std::byte bytes[Largest::kTileBytes];
  };

  static void unpack(const LinearTask& task, const std::byte* p, Ahead& ahead, Panel& panel) noexcept {
    for (int g = 0; g < kGroups; ++g) {
      const std::byte* rows[kRows];
      for (int64_t i = 0; i < kRows; ++i) rows[i] = p + (g * kRows + i) * task.row_bytes;
      for (int64_t i = 0; i < kLinesOfUnpack; ++i) ahead.fetch_line();
      Largest::build(task, rows, panel.bytes + 32 * g);
    }
  }

  static void lay(const LinearTask& task, int64_t token, int64_t n, int64_t b, Side& side) noexcept {
    lay_as<kTokensMax>(task, token, n, b, side);
  }

  template <int kUsed>
  static void run(const Panel* panels, const Side* sides, int64_t step, int64_t n, Ahead& ahead,
                  float* chains) noexcept {
    auto& c = *reinterpret_cast<__m256(*)[kUsed][kGroups]>(chains);
    for (int64_t b = 0; b < n; ++b, ++panels, sides += step) {
      for (int64_t i = 0; i < kLinesOfRun; ++i) ahead.fetch_line();
      Kernel<kUsed>::run(panels->bytes, sides->bytes, 1, c);
    }
  }

 private:
  // 16 rows of a block are 5 lines (4 bits, 32 elements) to 52 (6 bits, 256 elements); the loops fetch what is left.
  static constexpr int64_t kLinesOfUnpack = kBlock == 256 ? 8 : 2, kLinesOfRun = kBlock == 256 ? 8 : 1;

  template <int kUsed>
  static void lay_as(const LinearTask& task, int64_t token, int64_t n, int64_t b, Side& side) noexcept {
    if constexpr (kUsed > 1) {
      if (n < kUsed) return lay_as<kUsed - 1>(task, token, n, b, side);
    }
    int64_t rows[kUsed];
    for (int t = 0; t < kUsed; ++t) rows[t] = token + t;
    Kernel<kUsed>::lay(task, rows, b, side.bytes);
  }
};

template <template <class, int, int> class Tile, class Format, int kPlanes>
struct TilesOfFormat {
  template <int kTokens>
  using OfTokens = Tile<Format, kPlanes, kTokens>;
};

// The kernel for few tokens of a format with Tile<Format, planes, tokens>, of which the widest has kTokensMax.
template <template <class, int, int> class Tile, class Format, int kPlanes, int kTokensMax>
GemmKernel skinny_of_tiles() noexcept {
  return skinny_kernel<SkinnyOfTiles<TilesOfFormat<Tile, Format, kPlanes>::template OfTokens, kTokensMax>>();
}

}  // namespace
}  // namespace assay::backend::cpu
