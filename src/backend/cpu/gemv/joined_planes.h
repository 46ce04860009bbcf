// When both planes of a superblock's activations may be multiplied as one integer: for the matrix-matrix kernels that
// take words. Included by kernel files only; everything here is local to the file that includes it.
//   With x = 128 q + l and w a weight times the scale of its sub-block (at most 4096), a superblock is one chain of
// integers, C = sum w x = 128 I_q + I_l. The contract's F = fma(1/128, float(I_l), float(I_q)) is float(C) / 128 where
// both conversions in it are exact and C does not wrap. With |w|, |q| and |l| the Euclidean norms of a row and of a
// token's planes, |I_q| <= |w||q| and |I_l| <= |w||l|. So |w||l| <= 2^24 makes the conversion of I_l exact; |w||q| <= 3
// * 2^23 keeps C below 2^32 - 2^29, hence a C seen within +-2^29 has not wrapped, and then |I_q| < 2^24. Where this
// cannot be shown (activations near their bound all over, now and then a long row of Q6_K) the planes are taken apart.
#pragma once

namespace assay::backend::cpu {
namespace {

constexpr float kNormsOfQ = 3.0f * 0x1p23f, kNormsOfL = 0x1p24f - 0x1p12f, kSeen = 0x1p29f;
constexpr float kNormAbove = 1 + 0x1p-20f;  // makes a computed norm no smaller than the true one

}  // namespace
}  // namespace assay::backend::cpu
