// The scalar reference of activations.h: quantising a row, and the dots of the contract.
#include "quant/activations.h"

#include <algorithm>
#include <limits>

#include "base/round_up.h"
#include "num/lanes.h"
#include "quant/encode.h"
#include "quant/steps.h"

namespace assay::quant {
namespace {

constexpr int64_t kChunks = 8;

constexpr size_t align_64(size_t bytes) noexcept { return base::round_up(bytes, 64); }

// Bytes of each part, in the order of carve().
struct PartBytes {
  size_t plane, scales, sums;
};
PartBytes part_bytes(Activation kind, int64_t n_rows, int64_t k) noexcept {
  Activations shape;
  shape.kind = kind;
  const auto elements = static_cast<size_t>(n_rows * k);
  return {align_64(elements), align_64(elements / static_cast<size_t>(shape.block()) * sizeof(float)),
          align_64(elements / static_cast<size_t>(shape.group()) * sizeof(int16_t))};
}

// One block of either kind. l is null with one plane. Returns d.
float quantise_block(const float* x, int64_t n, int8_t* q, int8_t* l) noexcept {
  const BlockScale scale = block_scale(magnitude_bits_max(x, static_cast<int>(n)));
  if (scale.r == 0.0f) {
    std::fill_n(q, n, int8_t{0});
    if (l != nullptr) std::fill_n(l, n, int8_t{0});
    return scale.d;
  }
  for (int64_t j = 0; j < n; ++j) {
    const float first = first_plane(x[j], scale.r);
    q[j] = static_cast<int8_t>(first);
    if (l != nullptr) l[j] = static_cast<int8_t>(second_plane(x[j], scale.r, first));
  }
  return scale.d;
}

// The longest group is 32 of at most 127.
static_assert(32 * 127 <= std::numeric_limits<int16_t>::max());
void sum_groups(const int8_t* q, int64_t k, int64_t group, int16_t* sums) noexcept {
  for (int64_t g = 0; g < k / group; ++g) {
    int sum = 0;
    for (int64_t j = 0; j < group; ++j) sum += q[g * group + j];
    sums[g] = static_cast<int16_t>(sum);
  }
}

// The float term of one block.
float term_of(const Format& format, const std::byte* block, const int8_t* q, const int8_t* l) noexcept {
  const IntegerSums high = format.sums(block, q);
  const IntegerSums low = l != nullptr ? format.sums(block, l) : IntegerSums{};
  const float f = l != nullptr ? join_planes(high.i, low.i) : static_cast<float>(high.i);
  const float g = l != nullptr ? join_planes(high.m, low.m) : static_cast<float>(high.m);
  return block_term(format.has_min, format.scales(block), f, g);
}

}  // namespace

size_t activations_bytes(Activation kind, int planes, int64_t n_rows, int64_t k) noexcept {
  const PartBytes bytes = part_bytes(kind, n_rows, k);
  return static_cast<size_t>(planes) * (bytes.plane + bytes.sums) + bytes.scales;
}

Activations carve(Activation kind, int planes, int64_t n_rows, int64_t k, std::byte* memory) noexcept {
  const PartBytes bytes = part_bytes(kind, n_rows, k);
  const auto take = [&memory](size_t n) {
    std::byte* part = memory;
    memory += n;
    return part;
  };
  Activations a;
  a.kind = kind;
  a.planes = planes;
  a.n_rows = n_rows;
  a.k = k;
  a.q = reinterpret_cast<int8_t*>(take(bytes.plane));
  if (planes == 2) a.l = reinterpret_cast<int8_t*>(take(bytes.plane));
  a.d = reinterpret_cast<float*>(take(bytes.scales));
  a.q_sums = reinterpret_cast<int16_t*>(take(bytes.sums));
  if (planes == 2) a.l_sums = reinterpret_cast<int16_t*>(take(bytes.sums));
  return a;
}

void quantise_row_ref(const float* x, const Activations& out, int64_t row) noexcept {
  const int64_t k = out.k, block = out.block(), group = out.group();
  int8_t* q = out.q + row * k;
  int8_t* l = out.planes == 2 ? out.l + row * k : nullptr;
  for (int64_t b = 0; b < k / block; ++b) {
    int8_t* refinement = l != nullptr ? l + b * block : nullptr;
    out.d[row * (k / block) + b] = quantise_block(x + b * block, block, q + b * block, refinement);
  }
  sum_groups(q, k, group, out.q_sums + row * (k / group));
  if (l != nullptr) sum_groups(l, k, group, out.l_sums + row * (k / group));
}

float dot_ref(const Format& format, const std::byte* weight_row, const Activations& x, int64_t row) noexcept {
  const tensor::DTypeTraits& t = tensor::traits(format.dtype);
  const int64_t n_blocks = x.k / t.block_elements;
  const float* d = x.d + row * n_blocks;
  const int8_t* q = x.q + row * x.k;
  const int8_t* l = x.planes == 2 ? x.l + row * x.k : nullptr;
  float chunks[kChunks];
  for (int64_t i = 0; i < kChunks; ++i) {
    float c = 0;
    for (int64_t b = chunk_begin(i, n_blocks); b < chunk_begin(i + 1, n_blocks); ++b) {
      const int64_t j = b * t.block_elements;
      c = num::fma(d[b], term_of(format, weight_row + b * t.block_bytes, q + j, l != nullptr ? l + j : nullptr), c);
    }
    chunks[i] = c;
  }
  return chunk_tree(chunks);
}

float dot_f32_ref(const Format& format, const std::byte* weight_row, const float* x, int64_t k) noexcept {
  const tensor::DTypeTraits& t = tensor::traits(format.dtype);
  const int64_t run = std::max<int64_t>(t.block_elements, 32);  // decoded together
  const int64_t n_blocks = (k + 31) / 32;
  float w[256];
  int64_t decoded = -1;  // the run in w
  float chunks[kChunks];
  for (int64_t i = 0; i < kChunks; ++i) {
    num::Lanes32 sum;
    for (int64_t j = 32 * chunk_begin(i, n_blocks); j < std::min(k, 32 * chunk_begin(i + 1, n_blocks)); ++j) {
      if (j / run != decoded) {
        decoded = j / run;
        decode_row(format, weight_row + decoded * run / t.block_elements * t.block_bytes,
                   std::min(run, k - decoded * run), w);
      }
      sum.fma(j, w[j % run], x[j]);
    }
    chunks[i] = sum.fold();
  }
  return chunk_tree(chunks);
}

}  // namespace assay::quant
