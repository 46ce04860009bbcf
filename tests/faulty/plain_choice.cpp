// See plain_choice.h.
#include "faulty/plain_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/attention/choose_keys.h"
#include "ops/plan/cached_run.h"
#include "ops/plan/op_values.h"

namespace assay::faults {
namespace {

// The same choice with one place less.
void choose_one_too_few(const ops::ChooseKeys& op, const ops::HostRows<double>& rows, const ops::CachedRun<double>& at,
                        int64_t token) {
  ops::Plan narrower = *rows.plan;
  const int64_t n = --narrower.values[static_cast<size_t>(op.y)].width;
  std::vector<double> chosen(static_cast<size_t>((token + 1) * n));
  std::vector<double*> values(rows.values.begin(), rows.values.end());
  values[static_cast<size_t>(op.y)] = chosen.data();
  ops::HostRows<double> own = rows;
  own.plan = &narrower, own.values = values;
  op.run(own, at, token, token + 1);
  std::copy_n(chosen.end() - n, n, rows.row(op.y, token));
  rows.row(op.y, token)[n] = -1;
}

// The same, the higher position first among equals.
void choose_ties_high(const ops::ChooseKeys& op, const ops::HostRows<double>& rows, const ops::CachedRun<double>& at,
                      int64_t token) {
  const int64_t n = rows.positions[static_cast<size_t>(token)] + int64_t{1}, n_chosen = rows.width(op.y);
  std::vector<std::pair<double, int64_t>> scored;
  for (int64_t p = 0; p < n; ++p)
    scored.emplace_back(ops::index_score_ref(rows.row(op.q, token), rows.row(op.weights, token),
                                             at.keys + p * at.k_stride, op.n_heads, op.head_dim),
                        p);
  std::sort(scored.rbegin(), scored.rend());
  std::vector<double> chosen;
  for (int64_t i = 0; i < std::min(n, n_chosen); ++i)
    chosen.push_back(static_cast<double>(scored[static_cast<size_t>(i)].second));
  std::sort(chosen.begin(), chosen.end());
  chosen.resize(static_cast<size_t>(n_chosen), -1.0);
  std::copy(chosen.begin(), chosen.end(), rows.row(op.y, token));
}

}  // namespace

void run_cached_plain(const ops::Op& op, const ops::HostRows<double>& rows, const PlainCache& cache, int sequence,
                      int64_t token, Fault fault) {
  const int32_t layer = ops::cache_layer_of(op);
  const ops::CacheLayer& of = rows.plan->cache_layers[static_cast<size_t>(layer)];
  const int64_t n = cache.n_positions(sequence);
  std::vector<double> keys, values;
  for (int64_t p = 0; p < n; ++p) {
    for (int64_t head = 0; head < of.n_kv_heads; ++head) {
      const float *k = cache.key(sequence, layer, head, p, n), *v = cache.value(sequence, layer, head, p, n);
      keys.insert(keys.end(), k, k + of.head_dim);
      values.insert(values.end(), v, v + of.v_dim());
    }
  }
  std::vector<double> scratch(static_cast<size_t>(n));
  std::vector<int32_t> order(static_cast<size_t>(n));
  const ops::CachedRun<double> at{
      n,           keys.data(), of.n_kv_heads * of.head_dim, values.data(), of.n_kv_heads * of.v_dim(), scratch.data(),
      order.data()};
  const auto* choice = op.as<ops::ChooseKeys>();
  if (choice != nullptr && fault == Fault::choice_one_too_few && rows.width(choice->y) > 1)
    return choose_one_too_few(*choice, rows, at, token);
  if (choice != nullptr && fault == Fault::choice_ties_high) return choose_ties_high(*choice, rows, at, token);
  op.record.run(rows, at, token, token + 1);
}

}  // namespace assay::faults
