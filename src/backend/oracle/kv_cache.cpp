// See kv_cache.h.
#include "backend/oracle/kv_cache.h"

#include <algorithm>

namespace assay::backend::oracle {

KvCache::KvCache(std::span<const ops::CacheLayer> layers, int64_t n_ctx, int n_sequences)
    : n_ctx_(n_ctx), n_positions_(static_cast<size_t>(n_sequences), 0) {
  for (const ops::CacheLayer& shape : layers) {
    layers_.push_back({shape, sequence_elements_});
    sequence_elements_ += (layers_.back().k_width() + layers_.back().v_width()) * n_ctx;
  }
  memory_ = base::AlignedBuffer(
      static_cast<uint64_t>(sequence_elements_) * static_cast<uint64_t>(n_sequences) * sizeof(double),
      "the oracle's KV cache");
}

const double* KvCache::k_begin(int sequence, int32_t layer) const {
  const double* elements = static_cast<const double*>(static_cast<const void*>(memory_.data()));
  return elements + sequence * sequence_elements_ + layers_[static_cast<size_t>(layer)].offset;
}

const double* KvCache::v_begin(int sequence, int32_t layer) const {
  return k_begin(sequence, layer) + layers_[static_cast<size_t>(layer)].k_width() * n_ctx_;
}

HeadCache KvCache::head(int sequence, int32_t layer, int64_t head) const {
  const Layer& l = layers_[static_cast<size_t>(layer)];
  if (l.shape.values_in_keys) {
    const double* keys = k_begin(sequence, layer) + head * l.shape.head_dim;
    return {keys, l.k_width(), keys, l.k_width()};
  }
  return {k_begin(sequence, layer) + head * l.shape.head_dim, l.k_width(),
          v_begin(sequence, layer) + head * l.shape.v_dim(), l.v_width()};
}

void KvCache::store(int sequence, int32_t layer, int64_t position, const double* k, const double* v) {
  double* elements = static_cast<double*>(static_cast<void*>(memory_.data()));
  const Layer& l = layers_[static_cast<size_t>(layer)];
  double* keys = elements + sequence * sequence_elements_ + l.offset;
  double* values = keys + l.k_width() * n_ctx_;
  std::copy(k, k + l.k_width(), keys + position * l.k_width());
  if (v != nullptr) std::copy(v, v + l.v_width(), values + position * l.v_width());
}

void KvCache::truncate(int sequence, int64_t n_positions) {
  int64_t& n = n_positions_[static_cast<size_t>(sequence)];
  n = std::min(n, n_positions);
}

void KvCache::extend(int sequence, int64_t n_positions) { n_positions_[static_cast<size_t>(sequence)] = n_positions; }

void KvCache::visit(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const {
  const int64_t n = n_positions(sequence);
  for (int32_t layer = 0; layer < static_cast<int32_t>(layers_.size()); ++layer) {
    const Layer& l = layers_[static_cast<size_t>(layer)];
    sink(std::as_bytes(std::span(k_begin(sequence, layer), static_cast<size_t>(n * l.k_width()))));
    if (!l.shape.values_in_keys)
      sink(std::as_bytes(std::span(v_begin(sequence, layer), static_cast<size_t>(n * l.v_width()))));
  }
}

}  // namespace assay::backend::oracle
