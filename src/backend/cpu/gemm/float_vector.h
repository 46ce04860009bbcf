// One token's product with weights of 16 or 32 bits, shared by the instruction sets: a row after the other, each weight
// widened as it is loaded. Included by kernel files only; everything here is local to the file that includes it.
//
//   a row    | chunk 0     | chunk 1     | ...  | chunk 7     |     of contract dot/1, whole blocks of 32
//   a step     32 weights    32 weights           32 weights        of kTogether chunks: their sums stay in registers
//   and do not wait for one another
//
// A step fetches as many lines as it reads, one behind the other, kFloatsAhead bytes from its chunks' beginning on:
// rows lie one behind the other, so these are of rows to come.
#pragma once

#include "backend/cpu/gemm/float_tiles.h"

namespace assay::backend::cpu {
namespace {

constexpr int kTogether = 2;  // more read from as many places of a row, which was slower where pages are small
constexpr int64_t kFloatsAhead = 16 * 1024;

template <class Vector>
using Widen = typename Vector::Reg (*)(const std::byte*) noexcept;

template <class Vector>
inline typename Vector::Reg load_floats(const std::byte* p) noexcept {
  return Vector::load(reinterpret_cast<const float*>(p));
}

// 32 weights from element j on, added to the lanes of one chunk.
template <class Vector, Widen<Vector> kWiden, int kBytes>
inline void add_block(const std::byte* row, const float* x, int64_t j, typename Vector::Reg* lanes) noexcept {
  for (int g = 0; g < 32 / Vector::kWidth; ++g, j += Vector::kWidth)
    lanes[g] = Vector::fma(kWiden(row + kBytes * j), Vector::load(x + j), lanes[g]);
}

// Chunks first to first + kTogether - 1 of a row of n_blocks; those are equally long, or some have a block more.
template <class Vector, Widen<Vector> kWiden, int kBytes>
inline void run_chunks(const std::byte* row, const float* x, int64_t n_blocks, int first,
                       typename Vector::Partial* out) noexcept {
  constexpr int kGroups = 32 / Vector::kWidth;
  typename Vector::Reg sum[kTogether][kGroups];
  int64_t at[kTogether];
  for (int c = 0; c < kTogether; ++c) {
    at[c] = 32 * ((first + c) * n_blocks / 8);
    for (int g = 0; g < kGroups; ++g) sum[c][g] = Vector::zero();
  }
  const std::byte* ahead = row + kBytes * at[0] + kFloatsAhead;
  const auto add = [&](int c) {
    for (int line = 0; line < kBytes * 32; line += 64) __builtin_prefetch(ahead + line);
    ahead += kBytes * 32;
    add_block<Vector, kWiden, kBytes>(row, x, at[c], sum[c]);
    at[c] += 32;
  };
  for (int64_t step = n_blocks / 8; step > 0; --step) {
    for (int c = 0; c < kTogether; ++c) add(c);
  }
  for (int c = 0; c < kTogether; ++c) {
    if (at[c] < 32 * ((first + c + 1) * n_blocks / 8)) add(c);
    out[first + c] = Vector::fold(sum[c]);
  }
}

template <class Vector, Widen<Vector> kWiden, int kBytes>
void float_vector_rows(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* /*scratch*/) noexcept {
  const int64_t n_blocks = task.k / 32;
  for (int64_t r = row_begin; r < row_end; ++r) {
    const std::byte* row = task.weights + r * task.row_bytes;
    typename Vector::Partial chunks[8];
    for (int first = 0; first < 8; first += kTogether)
      run_chunks<Vector, kWiden, kBytes>(row, task.x_f32.data, n_blocks, first, chunks);
    const float sum = tree(Vector::fold_8(chunks));
    task.y.data[r] = task.bias == nullptr ? sum : sum + task.bias[r];
  }
}

// Of F16, BF16 and F32; else without run.
template <class Vector, Widen<Vector> kHalf, Widen<Vector> kBf16>
inline GemmKernel find_float_vector(tensor::DType dtype) noexcept {
  constexpr auto none = [](const LinearTask&) noexcept { return size_t{0}; };
  switch (dtype) {
    case tensor::DType::F16: return {&float_vector_rows<Vector, kHalf, 2>, none, 1};
    case tensor::DType::BF16: return {&float_vector_rows<Vector, kBf16, 2>, none, 1};
    case tensor::DType::F32: return {&float_vector_rows<Vector, &load_floats<Vector>, 4>, none, 1};
    default: return {};
  }
}

}  // namespace
}  // namespace assay::backend::cpu
