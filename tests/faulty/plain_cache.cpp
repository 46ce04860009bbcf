// See plain_cache.h.
#include "faulty/plain_cache.h"

#include <algorithm>
#include <cmath>

#include "faulty/plain_formats.h"

namespace assay::faults {
namespace {

// A head's key or value as q8_0: blocks of 32 integers with a half-precision scale.
void round_q8_0(std::vector<float>& x, Fault fault) {
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    float amax = 0;
    for (size_t j = begin; j < begin + 32; ++j) amax = std::max(amax, std::abs(x[j]));
    const float d = amax / 127;
    const float d_read = to_half(fault == Fault::cache_scale ? amax / 128 : d);
    for (size_t j = begin; j < begin + 32; ++j) x[j] = d == 0 ? 0 : std::nearbyint(x[j] / d) * d_read;
  }
}

// Of one head and position, so that both planes have the same cells.
int64_t cell_floats(const ops::CacheLayer& shape) { return std::max(shape.head_dim, shape.v_dim()); }

// Keys, or values: four times what is used, so that the faults that read beyond it stay inside and find zeros.
int64_t plane_of(const ops::CacheLayer& shape, int64_t n_ctx) {
  return 4 * shape.n_kv_heads * n_ctx * cell_floats(shape);
}

// Re-packed for another instruction set: four runs of eight become eight of four.
void repack(std::vector<float>& x) {
  const std::vector<float> plain = x;
  for (size_t j = 0; j < x.size(); ++j) x[j / 32 * 32 + j % 4 * 8 + j % 32 / 4] = plain[j];
}

}  // namespace

PlainCache::PlainCache(std::span<const ops::CacheLayer> layers, ops::CacheType type, int64_t n_ctx, int n_sequences,
                       Fault fault)
    : type_(type), n_ctx_(n_ctx), fault_(fault), sequences_(static_cast<size_t>(n_sequences)) {
  for (Sequence& sequence : sequences_) {
    for (const ops::CacheLayer& shape : layers) {
      sequence.layers.push_back({shape, std::vector<float>(static_cast<size_t>(2 * plane_of(shape, n_ctx)), 0.0f)});
    }
  }
}

std::vector<float> PlainCache::round(const float* x, int64_t head_dim, bool is_key) const {
  std::vector<float> stored(x, x + head_dim);
  if (type_ == ops::CacheType::f16) std::transform(stored.begin(), stored.end(), stored.begin(), to_half);
  if (type_ == ops::CacheType::q8_0) round_q8_0(stored, fault_);
  if (fault_ == Fault::cache_layout && is_key && type_ == ops::CacheType::q8_0) repack(stored);
  return stored;
}

// Where a head's elements of a position begin.
int64_t PlainCache::cell(const ops::CacheLayer& shape, int64_t kv_head, int64_t position, int64_t n_ctx_taken) const {
  if (fault_ == Fault::n_kv_heads_is_n_heads) return (position * shape.n_kv_heads + kv_head) * cell_floats(shape);
  return (kv_head * n_ctx_taken + position) * cell_floats(shape);
}

void PlainCache::store(int sequence, int32_t i_layer, int64_t position, const float* k, const float* v) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  Layer& l = s.layers[static_cast<size_t>(i_layer)];
  const int64_t d = l.shape.head_dim, d_v = l.shape.v_dim(), plane = plane_of(l.shape, n_ctx_);
  for (int64_t head = 0; head < l.shape.n_kv_heads; ++head) {
    const int64_t at = cell(l.shape, head, position, n_ctx_);
    const std::vector<float> key = round(k + head * d, d, true);
    std::copy(key.begin(), key.end(), l.memory.begin() + at);
    if (l.shape.values_in_keys) {
      std::copy_n(key.begin(), d_v, l.memory.begin() + plane + at);
    } else {
      const std::vector<float> value = round(v + head * d_v, d_v, false);
      std::copy(value.begin(), value.end(), l.memory.begin() + plane + at);
    }
  }
  s.n_positions = std::max(s.n_positions, position + 1);
  s.n_ever_stored = std::max(s.n_ever_stored, position + 1);
}

const float* PlainCache::key(int sequence, int32_t i_layer, int64_t kv_head, int64_t position, int64_t n_in_use) const {
  const Layer& l = layer(sequence, i_layer);
  return l.memory.data() + cell(l.shape, kv_head, position, fault_ == Fault::packed_strides ? n_in_use : n_ctx_);
}

const float* PlainCache::value(int sequence, int32_t i_layer, int64_t kv_head, int64_t position,
                               int64_t n_in_use) const {
  return key(sequence, i_layer, kv_head, position, n_in_use) + plane_of(layer(sequence, i_layer).shape, n_ctx_);
}

void PlainCache::truncate(int sequence, int64_t n_positions) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  s.n_positions = std::min(s.n_positions, n_positions);
}

void PlainCache::visit(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const {
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (int32_t i = 0; i < static_cast<int32_t>(s.layers.size()); ++i) {
    const ops::CacheLayer& shape = s.layers[static_cast<size_t>(i)].shape;
    for (const bool values : {false, true}) {
      for (int64_t position = 0; position < s.n_positions; ++position) {
        for (int64_t head = 0; head < shape.n_kv_heads; ++head) {
          const int64_t at = (values ? plane_of(shape, n_ctx_) : 0) + cell(shape, head, position, n_ctx_);
          const float* row = layer(sequence, i).memory.data() + at;
          const std::span<const float> floats(row, static_cast<size_t>(values ? shape.stored_v_dim() : shape.head_dim));
          std::vector<uint16_t> halves;
          if (type_ == ops::CacheType::f16)
            std::transform(floats.begin(), floats.end(), std::back_inserter(halves), half_bits);
          sink(type_ == ops::CacheType::f16 ? std::as_bytes(std::span(halves)) : std::as_bytes(floats));
        }
      }
    }
  }
}

size_t PlainCache::bytes() const {
  size_t sum = 0;
  for (const Sequence& s : sequences_) {
    for (const Layer& l : s.layers) sum += l.memory.size() * sizeof(float);
  }
  return sum;
}

}  // namespace assay::faults
