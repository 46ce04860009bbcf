// The kernel sets of x86-64 processors.
#include "backend/cpu/gemm/skinny.h"
#include "backend/cpu/gemv/gemv_short.h"
#include "backend/cpu/linear/quantise.h"
#include "backend/cpu/sets/kernel_set.h"
#include "backend/cpu/sets/simd_kernels.h"
#include "base/x86_features.h"

namespace assay::backend::cpu {
namespace {

bool has_avx2() noexcept { return base::has_avx2_and_f16c() && __builtin_cpu_supports("fma"); }

bool has_avx512() noexcept {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

using tensor::DType;
using enum WeightKind;

// What a row says of a task: its format's kernel, chosen by format alone or by format and planes.
template <GemvKernel (*kFind)(DType) noexcept>
LinearKernel vector(const LinearTask& t) noexcept {
  return {kFind(t.format->dtype), {}};
}
template <GemmKernel (*kFind)(DType) noexcept>
LinearKernel matrix(const LinearTask& t) noexcept {
  return {nullptr, kFind(t.format->dtype)};
}
template <GemmKernel (*kFind)(DType, int) noexcept>
LinearKernel matrix_by_planes(const LinearTask& t) noexcept {
  return {nullptr, kFind(t.format->dtype, t.x.planes)};
}

// A vector kernel takes kGemvColumnsMax columns in one pass; where there are more, a panel of rows, once unpacked,
// serves them all.
constexpr int64_t kPanels1 = kGemvColumnsMax + 1, kPanels2 = kGemvColumnsMax / 2 + 1;

// Zen 5 and later (family 26 on): a vector's rows one after another, fetched far ahead, were the fastest on such a
// processor; by parts on the others that were measured. So were other kernels of few tokens.
bool is_zen5_or_later() noexcept {
  static const bool is = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!__builtin_cpu_is("amd") || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
    const unsigned family = (eax >> 8 & 15) + (eax >> 20 & 255);
    return family >= 26;
  }();
  return is;
}
constexpr GemvWalk kOneByOneBlocks = {true, 8 * 1024}, kOneByOneSuperblocks = {true, 16 * 1024};

// With AVX2 tiles are the same in the walks of panels and of few tokens, and the latter is the faster for many too,
// where a chunk of K is long enough that chains in memory do not count. Not so for blocks of 32 in bytes, whose chains
// stay in registers.
constexpr int64_t kLongRow = 2048;

LinearKernel floats_avx2(const LinearTask&) noexcept {
  return {nullptr, {&float_rows_avx2, &float_scratch_bytes_avx2, kFloatRowStep}};
}

// Of the formats whose panels are not of bytes.
LinearKernel skinny_words_avx2(const LinearTask& t) noexcept {
  return gemm_a32_bytes_avx2(t.format->dtype).run != nullptr ? LinearKernel{} : matrix_by_planes<skinny_a32_avx2>(t);
}

// Two tokens: the formats whose rows are unpacked for them in less time than a vector's kernel takes for the second.
LinearKernel skinny_of_two_avx2(const LinearTask& t) noexcept {
  const DType dtype = t.format->dtype;
  const bool one_plane = dtype == DType::Q4_0 || dtype == DType::Q4_1,
             two_planes = dtype == DType::IQ4_NL || (dtype == DType::Q4_1 && t.k < kLongRow);
  if (t.x.planes == 1) return one_plane ? matrix<skinny_a32_bytes_avx2>(t) : LinearKernel{};
  return two_planes ? matrix_by_planes<skinny_a32_avx2>(t) : LinearKernel{};
}

constexpr LinearRow kRowsAvx2[] = {
    {"float vector", floats, 0, 1, 1, 1, 32, &matrix<float_vector_avx2>},
    {"floats", floats, 0, 1, kAnyTokens, 1, 1, &floats_avx2},

    {"skinny", superblocks, 1, 3, kAnyTokens, kLongRow, 1, &matrix_by_planes<skinny_a256_avx2>},
    {"skinny of short rows", superblocks, 1, 3, 32, 1, 1, &matrix_by_planes<skinny_a256_avx2>},
    {"skinny", superblocks, 2, 2, 12, 1, 1, &matrix_by_planes<skinny_a256_avx2>},
    {"panels of bytes", superblocks, 1, kPanels1, kAnyTokens, 1, 1, &matrix<gemm_a256_bytes_avx2>},
    {"panels", superblocks, 1, kPanels1, kAnyTokens, 1, 1, &matrix<gemm_a256_avx2>},
    {"panels of words", superblocks, 2, kPanels2, kAnyTokens, 1, 1, &matrix<gemm_a256_words_avx2>},
    {"vector one by one", superblocks, 0, 1, kAnyTokens, 1, 1, &vector<gemv_a256_avx2>, kOneByOneSuperblocks,
     &is_zen5_or_later},
    {"vector", superblocks, 0, 1, kAnyTokens, 1, 1, &vector<gemv_a256_avx2>},

    {"skinny by bytes", blocks, 1, 3, 16, 1, 1, &matrix<skinny_a32_bytes_avx2>},
    {"skinny of two", blocks, 0, 2, 2, 1, 1, &skinny_of_two_avx2},
    {"skinny", blocks, 1, 17, kAnyTokens, kLongRow, 1, &skinny_words_avx2},
    {"skinny", blocks, 2, 3, kAnyTokens, kLongRow, 1, &matrix_by_planes<skinny_a32_avx2>},
    {"skinny of short rows", blocks, 2, 3, 16, 1, 1, &matrix_by_planes<skinny_a32_avx2>},
    {"panels of bytes", blocks, 1, kPanels1, kAnyTokens, 1, 1, &matrix<gemm_a32_bytes_avx2>},
    {"panels", blocks, 1, kPanels1, kAnyTokens, 1, 1, &matrix_by_planes<gemm_a32_avx2>},
    {"panels", blocks, 2, kPanels2, kAnyTokens, 1, 1, &matrix_by_planes<gemm_a32_avx2>},
    {"vector one by one", blocks, 0, 1, kAnyTokens, 1, 1, &vector<gemv_a32_avx2>, kOneByOneBlocks, &is_zen5_or_later},
    {"vector", blocks, 0, 1, kAnyTokens, 1, 1, &vector<gemv_a32_avx2>},
};

constexpr int64_t kFewRowBytesMax = 1 << 26;  // rows of a strip are reached by offsets of 32 bits

template <GemmKernel (*kFind)(DType, int) noexcept>
LinearKernel skinny_avx512(const LinearTask& t) noexcept {
  return t.row_bytes > kFewRowBytesMax ? LinearKernel{} : matrix_by_planes<kFind>(t);
}

// Dozens of tokens of longer rows take more than half of the second-level cache.
constexpr int64_t kDozensRowMax = 1536;

LinearKernel skinny_of_dozens(const LinearTask& t) noexcept {
  return t.k > kDozensRowMax ? LinearKernel{} : skinny_avx512<skinny_a32_avx512>(t);
}

LinearKernel float_columns(const LinearTask&) noexcept {
  return {nullptr, {&float_columns_avx512, &float_columns_scratch_bytes_avx512, kGemmRowStep}};
}
LinearKernel floats_avx512(const LinearTask&) noexcept {
  return {nullptr, {&float_rows_avx512, &float_scratch_bytes_avx512, kGemmRowStep}};
}

LinearKernel short_rows(const LinearTask& t) noexcept { return {nullptr, gemv_short_avx512(t)}; }
LinearKernel long_rows(const LinearTask& t) noexcept { return {nullptr, gemv_long_avx512(t)}; }

constexpr LinearRow kRowsAvx512[] = {
    {"float vector", floats, 0, 1, 1, 1, 32, &matrix<float_vector_avx512>},
    {"float columns", floats, 0, 8, kAnyTokens, 1, 32, &float_columns},
    {"floats", floats, 0, 1, kAnyTokens, 1, 1, &floats_avx512},

    {"skinny", superblocks, 1, 3, 4, 1, 1, &skinny_avx512<skinny_a256_avx512>},
    {"skinny of a dozen", superblocks, 1, 5, 12, 1, 1, &skinny_avx512<skinny_a256_avx512>, {}, &is_zen5_or_later},
    {"skinny", superblocks, 2, 2, 12, 1, 1, &skinny_avx512<skinny_a256_avx512>},
    {"panels", superblocks, 1, kPanels1, kAnyTokens, 1, 1, &matrix<gemm_a256_avx512>},
    {"panels of words", superblocks, 2, kPanels2, kAnyTokens, 1, 1, &matrix<gemm_a256_words_avx512>},
    {"vector one by one", superblocks, 0, 1, kAnyTokens, 1, 1, &vector<gemv_a256_avx512>, kOneByOneSuperblocks,
     &is_zen5_or_later},
    {"vector", superblocks, 0, 1, kAnyTokens, 1, 1, &vector<gemv_a256_avx512>},

    {"skinny of three", blocks, 1, 3, 3, 1, 1, &skinny_avx512<skinny_a32_avx512>, {}, &is_zen5_or_later},
    {"skinny", blocks, 1, 5, 16, 1, 1, &skinny_avx512<skinny_a32_avx512>},
    {"vector of two", blocks, 2, 2, 2, 1, 1, &vector<gemv_a32_avx512>, kOneByOneBlocks, &is_zen5_or_later},
    {"skinny", blocks, 2, 2, 32, 1, 1, &skinny_avx512<skinny_a32_avx512>},
    {"skinny of dozens", blocks, 2, 33, 72, 1, 1, &skinny_of_dozens, {}, &is_zen5_or_later},
    {"panels", blocks, 1, kPanels1, kAnyTokens, 1, 1, &matrix<gemm_a32_avx512>},
    {"panels", blocks, 2, kPanels2, kAnyTokens, 1, 1, &matrix<gemm_a32_avx512>},
    {"vector of short rows", blocks, 0, 1, 1, 512, 64, &short_rows, {}, &is_zen5_or_later},
    {"vector of long rows", blocks, 0, 1, 1, 1088, 64, &long_rows, {}, &is_zen5_or_later},
    {"vector one by one", blocks, 0, 1, kAnyTokens, 1, 1, &vector<gemv_a32_avx512>, kOneByOneBlocks, &is_zen5_or_later},
    {"vector", blocks, 0, 1, kAnyTokens, 1, 1, &vector<gemv_a32_avx512>},
};

void add_both_kernels(KernelFunctions& kernels) noexcept {
  add_avx2_kernels(kernels);
  add_avx512_kernels(kernels);
}

constexpr KernelSetParts kSets[] = {
    {Kernels::avx2, &has_avx2, kRowsAvx2, kGroupLanesAvx2, &quantise_rows_avx2, &add_avx2_kernels, &peak_loops_avx2,
     &joins_planes_avx2},
    {Kernels::avx512, &has_avx512, kRowsAvx512, kGroupLanesAvx512, &quantise_rows_avx2, &add_both_kernels,
     &peak_loops_avx512},
};

}  // namespace

std::span<const KernelSetParts> sets_of_build() noexcept { return kSets; }

}  // namespace assay::backend::cpu
