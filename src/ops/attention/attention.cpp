// Scalar reference of attention and of the cache's element types; the contract stands in attention.h.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "num/f16.h"
#include "num/lanes.h"
#include "num/math.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"
#include "quant/activations.h"

namespace assay::ops {
namespace {

constexpr int64_t kQ8Elements = 32;  // of the cache's q8_0 blocks, an f16 scale before them
constexpr int64_t kQ8Bytes = 2 + kQ8Elements;

float score(const float* q, const float* k, int64_t head_dim, const ScoreRule& rule) noexcept {
  float sum = 0.0f;
  for (int64_t j = 0; j < head_dim; ++j) sum = num::fma(q[j], k[j], sum);
  sum = sum * rule.scale;
  return rule.softcap > 0 ? num::softcap(sum, rule.softcap) : sum;
}

// row_of(t): the row of keys and values that stands at position t.
template <class RowOf>
void attend(const float* q, tensor::ConstMat keys, tensor::ConstMat values, int64_t first, int64_t last,
            const ScoreRule& rule, const RowOf& row_of, float* y) noexcept {
  const int64_t v_dim = values.cols;
  float m = 0.0f, l = 0.0f;
  bool started = false;
  for (int64_t begin = first; begin <= last;) {
    const int64_t end = std::min(last + 1, (begin / kAttentionSegment + 1) * kAttentionSegment);
    float p[kAttentionSegment];
    float m_segment = -std::numeric_limits<float>::infinity();
    for (int64_t t = begin; t < end; ++t) {
      p[t - begin] = score(q, keys.row(row_of(t)), keys.cols, rule);
      m_segment = p[t - begin] > m_segment ? p[t - begin] : m_segment;
    }
    num::Lanes32 sum;
    for (int64_t t = begin; t < end; ++t) {
      p[t - begin] = num::exp(p[t - begin] - m_segment);
      sum.add(t, p[t - begin]);
    }
    const float l_segment = sum.fold();
    const float m_both = m_segment > m ? m_segment : m;
    const float a = num::exp(m - m_both), b = num::exp(m_segment - m_both);
    for (int64_t j = 0; j < v_dim; ++j) {
      float o = 0.0f;
      for (int64_t t = begin; t < end; ++t) o = num::fma(p[t - begin], values(row_of(t), j), o);
      y[j] = started ? num::fma(y[j], a, o * b) : o;
    }
    l = started ? num::fma(l, a, l_segment * b) : l_segment;
    m = started ? m_both : m_segment;
    started = true;
    begin = end;
  }
  if (rule.sink != nullptr) {
    const float m_both = *rule.sink > m ? *rule.sink : m;
    const float a = num::exp(m - m_both), b = num::exp(*rule.sink - m_both);
    l = num::fma(l, a, b);
    for (int64_t j = 0; j < v_dim; ++j) y[j] = y[j] * a;
  }
  for (int64_t j = 0; j < v_dim; ++j) y[j] = y[j] / l;
}

}  // namespace

void attention_ref(const float* q, tensor::ConstMat keys, tensor::ConstMat values, int64_t first, int64_t last,
                   const ScoreRule& rule, float* y) noexcept {
  attend(
      q, keys, values, first, last, rule, [](int64_t t) { return t; }, y);
}

void attention_over_ref(const float* q, tensor::ConstMat keys, tensor::ConstMat values, const float* row_of, int64_t n,
                        const ScoreRule& rule, float* y) noexcept {
  attend(
      q, keys, values, 0, n - 1, rule, [row_of](int64_t t) { return static_cast<int64_t>(row_of[t]); }, y);
}

int64_t cache_row_bytes(CacheType type, int64_t head_dim) noexcept {
  switch (type) {
    case CacheType::f32: return head_dim * 4;
    case CacheType::f16: return head_dim * 2;
    case CacheType::q8_0: return head_dim / kQ8Elements * kQ8Bytes;
  }
  return 0;
}

void cache_encode_ref(CacheType type, const float* x, int64_t head_dim, std::byte* row) noexcept {
  if (type == CacheType::f32) {
    std::memcpy(row, x, static_cast<size_t>(head_dim) * sizeof(float));
  } else if (type == CacheType::f16) {
    for (int64_t j = 0; j < head_dim; ++j) {
      const uint16_t half = num::float_to_half(x[j]);
      std::memcpy(row + 2 * j, &half, sizeof half);
    }
  } else {
    for (int64_t block = 0; block < head_dim / kQ8Elements; ++block) {
      float d = 0.0f;
      int8_t q[kQ8Elements];
      int16_t sums[1];
      quant::Activations out;
      out.kind = quant::Activation::a32;
      out.planes = 1;
      out.n_rows = 1;
      out.k = kQ8Elements;
      out.q = q;
      out.d = &d;
      out.q_sums = sums;
      quant::quantise_row_ref(x + block * kQ8Elements, out, 0);
      const uint16_t half = num::float_to_half(d);
      std::memcpy(row + block * kQ8Bytes, &half, sizeof half);
      std::memcpy(row + block * kQ8Bytes + 2, q, sizeof q);
    }
  }
}

void cache_decode_ref(CacheType type, const std::byte* row, int64_t head_dim, float* x) noexcept {
  if (type == CacheType::f32) {
    std::memcpy(x, row, static_cast<size_t>(head_dim) * sizeof(float));
  } else if (type == CacheType::f16) {
    for (int64_t j = 0; j < head_dim; ++j) {
      uint16_t half;
      std::memcpy(&half, row + 2 * j, sizeof half);
      x[j] = num::half_to_float(half);
    }
  } else {
    for (int64_t j = 0; j < head_dim; ++j) {
      const std::byte* block = row + j / kQ8Elements * kQ8Bytes;
      uint16_t half;
      std::memcpy(&half, block, sizeof half);
      const auto q = static_cast<int8_t>(block[2 + j % kQ8Elements]);
      x[j] = num::half_to_float(half) * static_cast<float>(q);
    }
  }
}

void Attention::check(const CheckScope& s) const {
  const CacheLayer& of = s.cache_layer(layer);
  s.expect(of.n_kv_heads, n_kv_heads, "KV heads");
  s.expect(of.head_dim, head_dim, "elements of a head");
  if (s.domain(q) != RowDomain::tokens) s.refuse("attention of selected tokens alone");
  s.expect(s.width(q), n_heads * head_dim, "columns");
  s.expect(s.width(y), n_heads * of.v_dim(), "columns of the result");
  s.expect_vector(sinks, n_heads, "sinks");
  if (!causal && (chunk > 0 || s.plan().causal))
    s.refuse("attention to later positions in chunks, or in a plan that is causal,");
  if (softcap < 0 || !std::isfinite(softcap) || chunk < 0 || window < 0) s.refuse("a softcap, chunk or window below 0");
  if (n_kv_heads <= 0 || head_dim <= 0 || n_heads % n_kv_heads != 0) {
    s.refuse(std::to_string(n_heads) + " heads over " + std::to_string(n_kv_heads) + " KV heads");
  }
}

void Attention::shard(ShardScope& s) const {
  const HeadRanges& heads = s.heads(layer);
  const ColumnRanges of_q = times(heads.q, head_dim),
                     of_y = times(heads.q, s.whole().cache_layers[static_cast<size_t>(layer)].v_dim());
  const ValueId own_q = s.own_or_whole(q, of_q), own_y = s.make(y, of_y);
  const WeightId own_sinks = s.weight_elements(sinks, heads.q);
  s.enter(of_y, [&](size_t i) {
    Attention part = *this;
    part.q = own_q, part.y = own_y, part.sinks = own_sinks;
    if (!of_y.empty())
      part.n_heads = heads.q[i].end - heads.q[i].begin, part.n_kv_heads = heads.kv[i].end - heads.kv[i].begin;
    return part;
  });
}

OpWork Attention::work(const WorkScope& s) const {
  const auto [n_tokens, n_past, n_outputs, n_sequences] = s.shape();
  const int64_t v_dim = s.plan().cache_layers[static_cast<size_t>(layer)].v_dim(), end = n_past + n_tokens;
  const int64_t n_keys = end - first_visible(n_past, *this);
  int64_t n_pairs = 0;  // of a query and a key that it sees
  for (int64_t position = n_past; position < end; ++position)
    n_pairs += last_visible(position, end, *this) + 1 - first_visible(position, *this);
  const int64_t bytes_per_key =
      cache_row_bytes(s.options().cache_k, head_dim) +
      cache_row_bytes(s.options().cache_v, s.plan().cache_layers[static_cast<size_t>(layer)].stored_v_dim());
  return {.bytes = n_sequences * n_keys * n_kv_heads * bytes_per_key,
          .multiply_adds = n_sequences * n_pairs * n_heads * (head_dim + v_dim)};
}

}  // namespace assay::ops
