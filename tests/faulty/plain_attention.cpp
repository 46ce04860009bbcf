// See plain_attention.h.
#include "faulty/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "faulty/plain_formats.h"

namespace assay::faults {
namespace {

constexpr int64_t kCellsPerBlock = 16;

// exp(score) over its sum; the fault takes no maximum off and falls back to equal shares.
std::vector<float> softmax(const std::vector<float>& scores, Fault fault) {
  const bool plain_exp = fault == Fault::softmax_uniform;
  const float largest = plain_exp ? 0.0f : *std::max_element(scores.begin(), scores.end());
  std::vector<float> shares;
  float sum = 0;
  for (const float s : scores) {
    shares.push_back(static_cast<float>(std::exp(static_cast<double>(s - largest))));
    sum += shares.back();
  }
  for (float& share : shares)
    share = plain_exp && !std::isfinite(sum) ? 1.0f / static_cast<float>(scores.size()) : share / sum;
  return shares;
}

}  // namespace

std::vector<int64_t> PlainAttention::visible() const {
  int64_t window = is(Fault::window_ignored) ? 0 : op.window;
  if (window > 0 && is(Fault::window_plus_one)) ++window;
  int64_t begin = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
  if (op.chunk > 0) begin = std::max(begin, position - position % op.chunk);
  if (is(Fault::decode_sees_itself) && run_n_tokens == 1) begin = position;
  int64_t end = is(Fault::no_causal_mask) || !op.causal ? cache.n_positions(sequence) : position + 1;
  if (!op.causal && window > 0)
    begin = std::max<int64_t>(0, position - window / 2), end = std::min(end, position + window / 2 + 1);
  std::vector<int64_t> cells;
  for (int64_t p = begin; p < end; ++p) {
    const bool resumed = run_start > 0 && run_n_tokens > 1 && p < run_start;
    cells.push_back(is(Fault::ring_off_by_one) && resumed ? std::min(p + 1, run_start - 1) : p);
  }
  if (is(Fault::stale_cells)) {
    const int64_t in_use = cache.n_positions(sequence);
    const int64_t block_end = (in_use + kCellsPerBlock - 1) / kCellsPerBlock * kCellsPerBlock;
    for (int64_t p = in_use; p < std::min(block_end, cache.n_ever_stored(sequence)); ++p) cells.push_back(p);
  }
  return cells;
}

int64_t PlainAttention::kv_head(int64_t head) const {
  if (is(Fault::kv_heads_tiled)) return head % op.n_kv_heads;
  if (is(Fault::n_kv_heads_is_n_heads)) return head;
  return head / (op.n_heads / op.n_kv_heads);
}

float PlainAttention::score(const float* q, const float* k) const {
  float sum = 0;
  for (int64_t j = 0; j < op.head_dim; ++j)
    sum = is(Fault::scores_f16) ? to_half(sum + to_half(q[j] * k[j])) : sum + q[j] * k[j];
  if (is(Fault::scale_of_d_model)) return sum / std::sqrt(static_cast<float>(d_model / op.n_heads));
  const double cap = op.softcap;
  if (is(Fault::softcap_before_scale))
    return static_cast<float>(cap * std::tanh(static_cast<double>(sum) / cap) * op.scale);
  const float scaled = sum * static_cast<float>(op.scale);
  return cap > 0 ? static_cast<float>(cap * std::tanh(static_cast<double>(scaled) / cap)) : scaled;
}

void PlainAttention::run(const float* q, int64_t head, float* y) const {
  const int64_t in_use = cache.n_positions(sequence);
  if (is(Fault::first_position_short) && position == 0) {
    if (head < op.n_kv_heads) std::copy_n(cache.value(sequence, op.layer, head, 0, in_use), v_dim, y);
    return;  // the other heads keep the zeros they had
  }
  const std::vector<int64_t> cells = visible();
  std::vector<float> scores;
  for (const int64_t p : cells) scores.push_back(score(q, cache.key(sequence, op.layer, kv_head(head), p, in_use)));
  if (!sinks.empty()) scores.push_back(sinks[static_cast<size_t>(head)]);
  const std::vector<float> shares = softmax(scores, fault);
  for (size_t i = 0; i < cells.size(); ++i) {
    const float* v = cache.value(sequence, op.layer, kv_head(head), cells[i], in_use);
    for (int64_t j = 0; j < v_dim; ++j) y[j] += shares[i] * v[j];
  }
}

}  // namespace assay::faults
