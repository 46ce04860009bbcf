// What kernels of this backend hold at most; known to plans made without a card.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::backend::cuda {

inline constexpr size_t kLinearsMax = 4;             // products of the same activations in one kernel
inline constexpr int64_t kBatchTokensMax = 256;      // of batch tiles
inline constexpr int64_t kGemvTokensMax = 8;         // from here on weights are unpacked once for many tokens
inline constexpr int64_t kSplitTokensMax = 8;        // tokens of a batch whose segments of attention are side by side
inline constexpr int64_t kHeadDimMax = 512;          // shared memory limits it
inline constexpr int64_t kNormWidthMax = 11 * 1024;  // a row lies in shared memory
inline constexpr int kShortBlocksMax = 4, kShortRows = 8;  // superblocks of a row that four lanes walk, rows of a warp
inline constexpr int64_t kExpertTokenElementsMax = 8 * 1024;  // of the rows of all ranks: integers in shared memory
inline constexpr int64_t kDecodeWidthMax = 16 * 1024;         // likewise, of decode's products

}  // namespace assay::backend::cuda
