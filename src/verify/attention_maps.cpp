// See attention_maps.h.
#include "verify/attention_maps.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/plan/op_values.h"

namespace assay::verify {

AttentionMaps::AttentionMaps(const ops::Plan& plan, std::span<const int32_t> layers) {
  std::vector<int32_t> wanted(layers.begin(), layers.end());
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  for (const ops::Op& op : plan.ops) {
    const auto* attention = op.as<ops::Attention>();
    if (attention == nullptr || !std::binary_search(wanted.begin(), wanted.end(), attention->layer)) continue;
    layers_.push_back({*attention, ops::kNone, {}, {}});
  }
  for (const ops::Op& op : plan.ops) {
    const auto* store = op.as<ops::KvStore>();
    for (Layer& layer : layers_) {
      if (store != nullptr && store->layer == layer.attention.layer) layer.k = store->k;
    }
  }
}

AttentionMaps::Found AttentionMaps::find_layer(const ops::Op& op) {
  const ops::ValueId written = ops::values_of(op).output;
  for (Layer& layer : layers_) {
    if (written != ops::kNone && (written == layer.k || written == layer.attention.q))
      return {&layer, written == layer.k};
  }
  return {};
}

void AttentionMaps::on_op(const ops::Op& op, std::span<const double> values) {
  const Found found = find_layer(op);
  std::vector<double>& kept = found.is_key ? found.layer->keys : found.layer->queries;
  kept.insert(kept.end(), values.begin(), values.end());
}

VerifyReport::AttentionMap AttentionMaps::map_of(const Layer& layer, int64_t n) {
  const ops::Attention& a = layer.attention;
  VerifyReport::AttentionMap map{a.layer, a.n_heads, n,
                                 std::vector<float>(static_cast<size_t>(a.n_heads * n * n), 0.0f)};
  std::vector<double> shares(static_cast<size_t>(n));
  for (int64_t head = 0; head < a.n_heads; ++head) {
    const int64_t kv_head = head / (a.n_heads / a.n_kv_heads);
    for (int64_t i = 0; i < n; ++i) {
      const double* q = layer.queries.data() + (i * a.n_heads + head) * a.head_dim;
      const int64_t first = ops::first_visible(i, a), last = ops::last_visible(i, n, a);
      double largest = -HUGE_VAL, sum = 0;
      for (int64_t j = first; j <= last; ++j) {
        const double* k = layer.keys.data() + (j * a.n_kv_heads + kv_head) * a.head_dim;
        double score = 0;
        for (int64_t d = 0; d < a.head_dim; ++d) score += q[d] * k[d];
        shares[static_cast<size_t>(j)] = score * a.scale;
        largest = std::max(largest, score * a.scale);
      }
      for (int64_t j = first; j <= last; ++j)
        sum += shares[static_cast<size_t>(j)] = std::exp(shares[static_cast<size_t>(j)] - largest);
      float* row = map.shares.data() + (head * n + i) * n;
      for (int64_t j = first; j <= last; ++j) row[j] = static_cast<float>(shares[static_cast<size_t>(j)] / sum);
    }
  }
  return map;
}

std::vector<VerifyReport::AttentionMap> AttentionMaps::maps() const {
  std::vector<VerifyReport::AttentionMap> all;
  for (const Layer& layer : layers_) {
    const auto n = static_cast<int64_t>(layer.queries.size()) / (layer.attention.n_heads * layer.attention.head_dim);
    const auto n_keys =
        static_cast<int64_t>(layer.keys.size()) / (layer.attention.n_kv_heads * layer.attention.head_dim);
    if (n == n_keys) all.push_back(map_of(layer, n));  // else the run was cut in between
  }
  return all;
}

}  // namespace assay::verify
