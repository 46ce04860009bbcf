// See kv_cache.h.
#include "backend/oracle/kv_cache.h"

#include <algorithm>

namespace assay::backend::oracle {

KvCache::KvCache(std::span<const ops::CacheLayer> layers, int64_t n_ctx, int n_sequences)
    : n_ctx_(n_ctx), n_positions_(static_cast<size_t>(n_sequences), 0) {
  for (const ops::CacheLayer& shape : layers) {
    layers_.push_back({shape, sequence_elements_});
    sequence_elements_ += 2 * shape.n_kv_heads * shape.head_dim * n_ctx;
  }
  memory_ = base::AlignedBuffer(static_cast<uint64_t>(sequence_elements_) * static_cast<uint64_t>(n_sequences) * sizeof(double),
                                "the oracle's KV cache");
}

const double* KvCache::k_begin(int sequence, int32_t layer) const {
  const double* elements = static_cast<const double*>(static_cast<const void*>(memory_.data()));
  return elements + sequence * sequence_elements_ + layers_[static_cast<size_t>(layer)].offset;
}

const double* KvCache::v_begin(int sequence, int32_t layer) const {
  return k_begin(sequence, layer) + layers_[static_cast<size_t>(layer)].width() * n_ctx_;
}

const double* KvCache::k_of_all(int sequence, int32_t layer, int64_t head, int64_t d) const {
  return k_begin(sequence, layer) + (head * layers_[static_cast<size_t>(layer)].shape.head_dim + d) * n_ctx_;
}

const double* KvCache::v(int sequence, int32_t layer, int64_t head, int64_t position) const {
  const Layer& l = layers_[static_cast<size_t>(layer)];
  return v_begin(sequence, layer) + position * l.width() + head * l.shape.head_dim;
}

void KvCache::store(int sequence, int32_t layer, int64_t position, const double* k, const double* v) {
  double* elements = static_cast<double*>(static_cast<void*>(memory_.data()));
  const Layer& l = layers_[static_cast<size_t>(layer)];
  double* keys = elements + sequence * sequence_elements_ + l.offset;
  double* values = keys + l.width() * n_ctx_;
  for (int64_t i = 0; i < l.width(); ++i) keys[i * n_ctx_ + position] = k[i];
  std::copy(v, v + l.width(), values + position * l.width());
}

void KvCache::truncate(int sequence, int64_t n_positions) {
  int64_t& n = n_positions_[static_cast<size_t>(sequence)];
  n = std::min(n, n_positions);
}

void KvCache::extend(int sequence, int64_t n_positions) { n_positions_[static_cast<size_t>(sequence)] = n_positions; }

void KvCache::visit(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const {
  const int64_t n = n_positions(sequence);
  std::vector<double> row;
  for (int32_t layer = 0; layer < static_cast<int32_t>(layers_.size()); ++layer) {
    const int64_t width = layers_[static_cast<size_t>(layer)].width();
    row.resize(static_cast<size_t>(width));
    for (int64_t position = 0; position < n; ++position) {
      for (int64_t i = 0; i < width; ++i) row[static_cast<size_t>(i)] = k_begin(sequence, layer)[i * n_ctx_ + position];
      sink(std::as_bytes(std::span(row)));
    }
    sink(std::as_bytes(std::span(v_begin(sequence, layer), static_cast<size_t>(n * width))));
  }
}

}  // namespace assay::backend::oracle
