// See attention_bound.h.
#include "bounds/attention_bound.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "assay/error.h"
#include "backend/oracle/oracle_ops.h"
#include "base/index.h"
#include "bounds/rounding.h"
#include "num/math64.h"
#include "ops/attention/attention.h"
#include "ops/plan/float64.h"

namespace assay::bounds {
namespace {

using backend::oracle::HeadCache;

constexpr int64_t kBlock = 32;  // of the cache's q8_0

int64_t n_blocks(int64_t head_dim) { return (head_dim + kBlock - 1) / kBlock; }

// What the cache does to an element: |x' - x| <= constant + relative |x|; constant is of its block
// of 32.
struct CacheRounding {
  double relative = 0;
  double tiny = 0;
  double of_largest = 0;  // times the block's largest magnitude
};

CacheRounding cache_rounding(ops::CacheType type, const Declared& declared) {
  const double u = unit(declared);
  switch (type) {
    case ops::CacheType::f32: return {};
    case ops::CacheType::f16: return {kUnitHalf, kTinyHalf, 0};
    case ops::CacheType::q8_0:
      return {gamma(4, u) + kUnitHalf * (1 + kUnitHalf), 127 * kTinyHalf + 0x1p-99,
              0.5 / 127 * (1 + 3 * u) * (1 + kUnitHalf)};
  }
  return {};
}

double norm_of(const double* x, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  return std::sqrt(squares) * (1 + 0x1p-40);
}

// The facts of one history that every query shares. Where the cache's rounding is known, k and v
// are as read back and carry no error.
struct Side {
  const double* k = nullptr;
  const double* v = nullptr;
  std::vector<double> k_norm,
      k_error;                     // [n_positions, n_kv_heads]: norms of a head's key and of its error
  std::vector<double> v_constant;  // [n_positions, n_kv_heads * blocks of 32]
  double v_relative = 0;
  std::span<const double> v_error;  // [n_positions, width]; empty: none
};

Side make_side(const ops::Plan& plan, const KvHistory& h, const ops::Attention& op, const Declared& declared,
               bool stored, base::ThreadPool& pool) {
  Side side;
  side.k = stored ? h.k_stored.data() : h.k.data();
  side.v = stored ? h.v_stored.data() : h.v.data();
  const CacheRounding of_k = stored ? CacheRounding{} : cache_rounding(declared.cache_k, declared);
  const ops::CacheLayer& layer = plan.cache_layers[at(op.layer)];
  const int64_t v_dim = layer.v_dim();
  const CacheRounding of_v = layer.values_in_keys ? of_k
                             : stored             ? CacheRounding{}
                                                  : cache_rounding(declared.cache_v, declared);
  side.v_relative = of_v.relative;
  if (!stored) side.v_error = h.v_error;
  const int64_t heads = op.n_kv_heads, k_blocks = n_blocks(op.head_dim), v_blocks = n_blocks(v_dim);
  side.k_norm.resize(at(h.n_positions() * heads));
  side.k_error.resize(side.k_norm.size());
  side.v_constant.resize(side.k_norm.size() * at(v_blocks));
  const auto block_constant = [](const CacheRounding& r, const double* x, const double* error, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]) + (error != nullptr ? error[i] : 0));
    return r.tiny + r.of_largest * largest;
  };
  pool.run(h.n_positions(), [&](int64_t p, int) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t first = p * h.width + head * op.head_dim, first_v = p * h.v_width + head * v_dim;
      const double* k_own = stored || h.k_error.empty() ? nullptr : h.k_error.data() + first;
      const double* v_own = stored || h.v_error.empty() ? nullptr : h.v_error.data() + first_v;
      const double norm = norm_of(side.k + first, op.head_dim),
                   own = k_own != nullptr ? norm_of(k_own, op.head_dim) : 0;
      double constants = 0;
      double* v_constants = side.v_constant.data() + (p * heads + head) * v_blocks;
      for (int64_t b = 0; b < k_blocks; ++b) {
        const int64_t n = std::min(kBlock, op.head_dim - b * kBlock), begin = first + b * kBlock;
        const double constant =
            block_constant(of_k, side.k + begin, k_own != nullptr ? k_own + b * kBlock : nullptr, n);
        constants += constant * constant * static_cast<double>(n);
        if (layer.values_in_keys && b < v_blocks) v_constants[b] = constant;  // rounded as part of the key's block
      }
      for (int64_t b = 0; b < v_blocks && !layer.values_in_keys; ++b) {
        v_constants[b] =
            block_constant(of_v, side.v + first_v + b * kBlock, v_own != nullptr ? v_own + b * kBlock : nullptr,
                           std::min(kBlock, v_dim - b * kBlock));
      }
      side.k_norm[at(p * heads + head)] = norm;
      side.k_error[at(p * heads + head)] = std::sqrt(constants) + of_k.relative * (norm + own) + own;
    }
  });
  return side;
}

std::optional<double> sink_of(const OpInputs& in, const ops::Attention& op, int64_t head) {
  if (op.sinks == ops::kNone) return std::nullopt;
  return ops::vector_of(in.plan.weights[at(op.sinks)])[at(head)];
}

// f16 copies of queries and shares, as llama.cpp makes them.
struct HalfCopies {
  bool q = false, shares = false;
};

struct Work {  // of one thread
  // Per key. score_steps: the magnitudes of a score's partial sums, added up.
  std::vector<double> shares, weight_error, spread, score_steps;
  // Per element. steps: likewise of the output's partial sums.
  std::vector<double> moved, sum, largest, segment, steps;
  std::vector<double> constant, largest_constant;  // per block of 32
  std::optional<double> sink;                      // the head's
  double sink_share = 0, sink_error = 0;           // and e^d - 1 of its share
};

// Scores as attention_scores makes them, with steps[j] = sum over i of |q_0 k_j0 + .. + q_i k_ji|,
// scaled: each is rounded once on the way.
void scores_and_steps(std::span<const double> q, const double* k, int64_t stride, int64_t first, int64_t last,
                      double scale, Work& work) {
  constexpr int64_t kAbreast = 8;
  for (int64_t begin = first; begin <= last; begin += kAbreast) {
    const double* keys[kAbreast];
    for (int64_t i = 0; i < kAbreast; ++i) keys[i] = k + std::min(begin + i, last) * stride;
    double sums[kAbreast] = {}, steps[kAbreast] = {};
    for (size_t d = 0; d < q.size(); ++d) {
      for (int64_t i = 0; i < kAbreast; ++i) {
        sums[i] += q[d] * keys[i][d];
        steps[i] += std::fabs(sums[i]);
      }
    }
    for (int64_t i = 0; i < kAbreast && begin + i <= last; ++i) {
      work.shares[at(begin + i - first)] = sums[i] * scale;
      work.score_steps[at(begin + i - first)] = steps[i] * std::fabs(scale);
    }
  }
}

// How the shares may be off: fills weight_error with e^d_j - 1. shares holds the scores at first,
// the shares at last.
struct ShareErrors {
  double inverse_z = 1;  // 1 / Z_min
  double factor = 1;     // no share is more than this times the true one, or less than the true one over this
};
ShareErrors share_errors(const ops::Attention& op, const Declared& declared, const Side& side, int64_t kv_head,
                         double q_norm, double q_error, int64_t first, int64_t last, Work& work) {
  const double u = unit(declared), scale = std::fabs(op.scale);
  const double n_score = static_cast<double>(op.head_dim) + 3;
  const int64_t n = last - first + 1;
  const double n_segments = static_cast<double>(last / ops::kAttentionSegment - first / ops::kAttentionSegment + 1);
  const double exp_error = (declared.own_sums ? 2 : 8) * u * (n_segments + 1);
  double largest = 0;
  for (int64_t j = 0; j < n; ++j) {
    const size_t key = at((first + j) * op.n_kv_heads + kv_head);
    const double k_norm = side.k_norm[key] + side.k_error[key];
    double& d = work.weight_error[at(j)];
    const double unsure = scale * (q_error * k_norm + q_norm * side.k_error[key]);
    const double rounding =
        declared.own_sums
            ? (1 + gamma(n_score, u)) * u * (work.score_steps[at(j)] + 2 * std::fabs(work.shares[at(j)])) +
                  gamma(n_score, u) * unsure + gamma(n_score, kUnitDouble) * scale * q_norm * k_norm
            : gamma(n_score, u) * scale * (q_norm + q_error) * k_norm;
    d = unsure + rounding;
    if (op.softcap > 0) {  // it moves no further than its argument; x / cap, tanh and the product: softcap's own error
      double& score = work.shares[at(j)];
      score = backend::oracle::softcap(score, op.softcap);
      d += gamma(10, u) * (std::fabs(score) + d);
    }
    largest = std::max(largest, d);
  }
  double z = 0, most = 0;
  std::vector<double>& shares = work.shares;
  double top = *std::max_element(shares.begin(), shares.begin() + n);
  if (work.sink) top = std::max(top, *work.sink);
  for (int64_t j = 0; j < n; ++j) work.spread[at(j)] = top - shares[at(j)];
  const double sink_spread = work.sink ? top - *work.sink : 0;
  backend::oracle::softmax({shares.data(), at(n)}, work.sink);
  for (int64_t j = 0; j < n; ++j) {
    double& d = work.weight_error[at(j)];
    d += u * (work.spread[at(j)] + 2 * largest) + exp_error;
    d = d <= 1 ? d + d * d : num::exp64(std::min(d, 700.0)) - 1;  // e^d - 1 <= d + d^2 up to 1.79
    z += shares[at(j)] / (1 + d);
    most = std::max(most, d);
  }
  work.sink_share = 0;
  if (work.sink) {  // the shares are all but the sink's
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += shares[at(j)];
    work.sink_share = std::max(0.0, 1 - sum);
    const double d = u * (sink_spread + 2 * largest) + exp_error;
    work.sink_error = d <= 1 ? d + d * d : num::exp64(std::min(d, 700.0)) - 1;
    z += work.sink_share / (1 + work.sink_error);
    most = std::max(most, work.sink_error);
  }
  return {1 / z, (1 + most) * (1 + most)};
}

// y = sum of shares times values, segment by segment; steps: the magnitudes of the partial sums
// inside of segments, added up.
void mean_of_values(const double* values, int64_t stride, int64_t first, int64_t last, Work& work,
                    std::span<double> y) {
  std::fill(y.begin(), y.end(), 0.0);
  std::fill(work.steps.begin(), work.steps.end(), 0.0);
  for (int64_t begin = first; begin <= last;) {
    const int64_t end = std::min(last + 1, (begin / ops::kAttentionSegment + 1) * ops::kAttentionSegment);
    std::fill(work.segment.begin(), work.segment.end(), 0.0);
    for (int64_t p = begin; p < end; ++p) {
      const double share = work.shares[at(p - first)];
      const double* v = values + (p - first) * stride;
      for (size_t d = 0; d < y.size(); ++d) {
        work.segment[d] += share * v[d];
        work.steps[d] += std::fabs(work.segment[d]);
      }
    }
    for (size_t d = 0; d < y.size(); ++d) y[d] += work.segment[d];
    begin = end;
  }
}

// moved: sum p (e^d - 1) |v - y| and of v's own errors; sum: sum p e^d |v|; constant: sum p e^d of
// the block's constant errors. From shares and weight_error.
void sum_errors(const Side& side, int64_t n_kv_heads, int64_t kv_head, int64_t first, int64_t n,
                std::span<const double> y, Work& work) {
  const auto v_dim = static_cast<int64_t>(y.size());
  const int64_t width = n_kv_heads * v_dim, blocks = n_blocks(v_dim);
  for (std::vector<double>* part : {&work.moved, &work.largest, &work.sum, &work.constant, &work.largest_constant}) {
    std::fill(part->begin(), part->end(), 0.0);
  }
  for (size_t d = 0; d < y.size() && work.sink; ++d) {  // a share of nothing
    work.moved[d] += work.sink_share * work.sink_error * std::fabs(y[d]);
    work.largest[d] = std::fabs(y[d]);
  }
  for (int64_t j = 0; j < n; ++j) {
    const double share = work.shares[at(j)], off = share * work.weight_error[at(j)];
    const double most = share + off;
    const int64_t begin = (first + j) * width + kv_head * v_dim;
    const double* v = side.v + begin;
    for (size_t d = 0; d < y.size(); ++d) {
      const double distance = std::fabs(v[d] - y[d]), magnitude = std::fabs(v[d]);
      work.moved[d] += off * distance;
      work.sum[d] += most * magnitude;
      work.largest[d] = std::max(work.largest[d], distance + side.v_relative * magnitude);
    }
    const double* constants = side.v_constant.data() + ((first + j) * n_kv_heads + kv_head) * blocks;
    for (int64_t b = 0; b < blocks; ++b) {
      work.constant[at(b)] += most * constants[b];
      work.largest_constant[at(b)] = std::max(work.largest_constant[at(b)], constants[b]);
    }
    if (side.v_error.empty()) continue;
    for (size_t d = 0; d < y.size(); ++d) {
      const double error = (1 + side.v_relative) * side.v_error[at(begin) + d];
      const double distance = std::fabs(v[d] - y[d]) + side.v_relative * std::fabs(v[d]);
      work.moved[d] += most * error;
      work.largest[d] = std::max(work.largest[d], distance + error);
    }
  }
}

void head_bound(const OpInputs& in, const ops::Attention& op, const Declared& declared, const Side& side, int64_t row,
                int64_t head, HalfCopies half, Work& work, double* y, double* bound) {
  const int64_t position = in.positions[at(row)], first = ops::first_visible(position, op),
                last = ops::last_visible(position, in.history[at(row)]->n_positions(), op), n = last - first + 1;
  const int64_t v_dim = in.plan.cache_layers[at(op.layer)].v_dim();
  const int64_t width = op.n_kv_heads * op.head_dim, v_width = op.n_kv_heads * v_dim,
                kv_head = head / (op.n_heads / op.n_kv_heads);
  const auto dim = at(v_dim);
  const int64_t at_q = row * in.a.width + head * op.head_dim;
  const std::span<const double> q = in.a.values.subspan(at(at_q), at(op.head_dim));
  const double q_norm = norm_of(q.data(), op.head_dim);
  double q_error = in.a.error.empty() ? 0 : norm_of(in.a.error.data() + at_q, op.head_dim);
  if (half.q) q_error += kUnitHalf * (q_norm + q_error) + kTinyHalf * std::sqrt(static_cast<double>(op.head_dim));

  work.sink = sink_of(in, op, head);
  scores_and_steps(q, side.k + kv_head * op.head_dim, width, first, last, op.scale, work);
  const auto [inverse_z, factor] = share_errors(op, declared, side, kv_head, q_norm, q_error, first, last, work);
  const double* values = side.v + first * v_width + kv_head * v_dim;
  mean_of_values(values, v_width, first, last, work, {y, dim});
  sum_errors(side, op.n_kv_heads, kv_head, first, n, {y, dim}, work);
  double half_shares = 0;  // 2^-25 of every value, where shares become f16
  for (int64_t j = 0; j < n && half.shares; ++j)
    half_shares = std::max(half_shares, norm_of(values + j * v_width, v_dim));
  const double u = unit(declared), keys = static_cast<double>(n);
  const double chain = std::min(keys, static_cast<double>(ops::kAttentionSegment));
  const double merges = static_cast<double>(last / ops::kAttentionSegment - first / ops::kAttentionSegment) + 1;
  const double in_double = gamma(keys + 2, kUnitDouble);
  const double of_values = (declared.own_sums ? gamma(2 * merges, u) : gamma(keys + 2, u)) + in_double;
  const double of_sum =
      (declared.own_sums ? gamma(std::ceil(chain / 32) + 5 + merges + 1, u) : gamma(keys + 3, u)) + in_double;
  const double of_half = half.shares ? kUnitHalf : 0;
  for (size_t d = 0; d < dim; ++d) {
    const double constant = work.constant[d / kBlock];
    const double farthest = work.largest[d] + work.largest_constant[d / kBlock];
    const double shifted = std::min(inverse_z * (work.moved[d] + side.v_relative * work.sum[d] + constant), farthest);
    const double magnitude =
        std::min(inverse_z * (work.sum[d] * (1 + side.v_relative) + constant), std::fabs(y[d]) + farthest);
    // The partial sums themselves, as known, and how far off the computed ones may be.
    const double unsure =
        (factor - 1) * work.sum[d] + inverse_z * (side.v_relative * work.sum[d] + constant + work.moved[d]);
    const double by_steps = (1 + gamma(chain, u)) * u * work.steps[d] + gamma(chain, u) * unsure;
    const double steps = declared.own_sums ? std::min(by_steps, gamma(chain, u) * magnitude) : 0;
    bound[d] = shifted + steps + (of_values + of_half) * magnitude + of_sum * (std::fabs(y[d]) + shifted) +
               half_shares * keys * kTinyHalf + tiny(declared);
  }
}

Work make_work(int64_t n_positions, int64_t v_dim) {
  const auto n = at(n_positions), dim = at(v_dim);
  const std::vector<double> keys(n), elements(dim), blocks(at(n_blocks(v_dim)));
  return {keys, keys, keys, keys, elements, elements, elements, elements, elements, blocks, blocks, {}, 0, 0};
}

void run_chain(const OpInputs& in, const ops::Attention& op, base::ThreadPool& pool, std::vector<Work>& work,
               ChainOp& chain) {
  const int64_t v_dim = in.plan.cache_layers[at(op.layer)].v_dim();
  chain.y.resize(at(in.a.n * op.n_heads * v_dim));
  pool.run(in.a.n * op.n_heads, [&](int64_t i, int thread) {
    const int64_t row = i / op.n_heads, head = i % op.n_heads, kv_head = head / (op.n_heads / op.n_kv_heads);
    const KvHistory& h = *chain.history[at(row)];
    const int64_t position = in.positions[at(row)];
    backend::oracle::attend(chain.a.values.subspan(at(row * chain.a.width + head * op.head_dim), at(op.head_dim)),
                            {h.k.data() + kv_head * op.head_dim, h.width, h.v.data() + kv_head * v_dim, h.v_width},
                            ops::first_visible(position, op), ops::last_visible(position, h.n_positions(), op),
                            {op.scale, op.softcap, sink_of(in, op, head)}, work[at(thread)].shares,
                            {chain.y.data() + i * v_dim, at(v_dim)});
  });
}

}  // namespace

KeyNorms key_norms(const ops::Plan& plan, const KvHistory& history, int32_t layer, const Declared& declared,
                   base::ThreadPool& pool) {
  const ops::CacheLayer& of = plan.cache_layers[at(layer)];
  const ops::Attention op{ops::kNone, layer, of.n_kv_heads, of.n_kv_heads, of.head_dim, 1, 0, ops::kNone};
  Side side = make_side(plan, history, op, declared, history.k_stored.size() == history.k.size(), pool);
  return {std::move(side.k_norm), std::move(side.k_error)};
}

Expected local_attention(const OpInputs& in, const ops::Attention& op, const Declared& declared, base::ThreadPool& pool,
                         const LocalOptions& options) {
  const ops::CacheLayer& layer = in.plan.cache_layers[at(op.layer)];
  const int64_t v_dim = layer.v_dim();
  int64_t longest = 1;
  for (const int32_t position : in.positions) longest = std::max<int64_t>(longest, position + 1);
  for (const KvHistory* h : in.history) longest = std::max(longest, op.causal ? 1 : h->n_positions());
  std::vector<Work> work;
  for (int i = 0; i < pool.n_threads(); ++i) work.push_back(make_work(longest, v_dim));

  // Where the cache rounds in a known way, the second test knows keys and values exactly.
  const bool rounds =
      declared.cache_k != ops::CacheType::f32 || (declared.cache_v != ops::CacheType::f32 && !layer.values_in_keys);
  bool known = options.as_declared && rounds && in.a.error.empty() && declared.own_sums;
  std::map<const KvHistory*, std::pair<Side, Side>> sides;  // as given, as stored
  for (const KvHistory* h : in.history)
    known = known && h->k_stored.size() == h->k.size() && h->v_stored.size() == h->v.size();
  for (const KvHistory* h : in.history) {
    if (sides.contains(h)) continue;
    sides.emplace(h, std::pair(make_side(in.plan, *h, op, declared, false, pool),
                               known ? make_side(in.plan, *h, op, declared, true, pool) : Side{}));
  }
  const HalfCopies half{
      declared.activations_f16 && declared.cache_k == ops::CacheType::f16,
      declared.activations_f16 && (layer.values_in_keys ? declared.cache_k : declared.cache_v) == ops::CacheType::f16};
  Expected e;
  const int64_t width = op.n_heads * v_dim;
  e.y.resize(at(in.a.n * width));
  e.bound.resize(e.y.size());
  if (known) e.declared_y.resize(e.y.size());
  if (known) e.declared_bound.resize(e.y.size());
  pool.run(in.a.n * op.n_heads, [&](int64_t i, int thread) {
    const int64_t row = i / op.n_heads, head = i % op.n_heads, out = row * width + head * v_dim;
    const auto& [given, stored] = sides.at(in.history[at(row)]);
    head_bound(in, op, declared, given, row, head, half, work[at(thread)], e.y.data() + out, e.bound.data() + out);
    if (known)
      head_bound(in, op, declared, stored, row, head, half, work[at(thread)], e.declared_y.data() + out,
                 e.declared_bound.data() + out);
  });
  if (options.chain != nullptr) run_chain(in, op, pool, work, *options.chain);
  return e;
}

void read_back(KvHistory& history, const ops::CacheLayer& layer, const Declared& declared) {
  if (!declared.own_sums || !history.k_error.empty() || !history.v_error.empty()) return;
  const auto round_trip = [](ops::CacheType type, int64_t dim, const std::vector<double>& from,
                             std::vector<double>& to) {
    std::vector<float> row(at(dim));
    std::vector<std::byte> bytes(at(ops::cache_row_bytes(type, dim)) + 8);
    size_t begin = to.size();
    to.reserve(from.size());  // exactly: resize may double
    to.resize(from.size());
    for (; begin < from.size(); begin += at(dim)) {
      for (size_t j = 0; j < at(dim); ++j) row[j] = static_cast<float>(from[begin + j]);
      ops::cache_encode_ref(type, row.data(), dim, bytes.data());
      ops::cache_decode_ref(type, bytes.data(), dim, row.data());
      std::copy(row.begin(), row.end(), to.begin() + static_cast<int64_t>(begin));
    }
  };
  round_trip(declared.cache_k, layer.head_dim, history.k, history.k_stored);
  if (!layer.values_in_keys) return round_trip(declared.cache_v, layer.v_dim(), history.v, history.v_stored);
  history.v_stored.reserve(history.v.size());
  for (size_t head = history.v_stored.size() / at(layer.v_dim()); head < history.v.size() / at(layer.v_dim()); ++head) {
    const auto from = history.k_stored.begin() + static_cast<int64_t>(head) * layer.head_dim;
    history.v_stored.insert(history.v_stored.end(), from, from + layer.v_dim());
  }
}

}  // namespace assay::bounds
