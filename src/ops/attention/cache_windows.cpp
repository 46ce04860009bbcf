// See cache_windows.h.
#include "ops/attention/cache_windows.h"

#include <algorithm>

#include "ops/plan/op_values.h"

namespace assay::ops {
namespace {

bool looks_back_shortly(const Attention& op) noexcept { return op.causal && (op.window > 0 || op.chunk > 0); }

}  // namespace

CacheWindows::CacheWindows(const Plan& plan) {
  std::vector<uint8_t> is_read(plan.cache_layers.size()), sees_all(plan.cache_layers.size());
  for (const Op& op : plan.ops) {
    const int32_t layer = cache_layer_of(op);
    if (layer == kNone || op.record.role() == Role::store) continue;
    const auto* attention = op.as<Attention>();
    is_read[static_cast<size_t>(layer)] = 1;
    if (attention == nullptr || !looks_back_shortly(*attention)) sees_all[static_cast<size_t>(layer)] = 1;
  }
  has_window_.resize(plan.cache_layers.size());
  for (size_t i = 0; i < has_window_.size(); ++i) has_window_[i] = is_read[i] != 0 && sees_all[i] == 0 ? 1 : 0;
  for (const Op& op : plan.ops) {
    const auto* attention = op.as<Attention>();
    if (attention == nullptr || !has_window(static_cast<size_t>(attention->layer))) continue;
    const auto is_alike = [&](const Attention& a) {
      return a.window == attention->window && a.chunk == attention->chunk;
    };
    if (std::none_of(attentions_.begin(), attentions_.end(), is_alike)) attentions_.push_back(*attention);
  }
}

int64_t CacheWindows::first_seen(int64_t position) const noexcept {
  int64_t first = position;
  for (const Attention& op : attentions_) first = std::min(first, first_visible(position, op));
  return first;
}

int64_t CacheWindows::n_pages(const ExecutorOptions& options, int64_t n_page) const noexcept {
  const int64_t n_all = cache_pages(options, n_page);
  if (empty() || !options.gives_back_windows) return n_all;
  int64_t widest = 0;
  for (int64_t p = 0; p < options.n_ctx; ++p) widest = std::max(widest, p + 1 - first_seen(p));
  const auto in_pages = [n_page](int64_t n) { return (n + n_page - 1) / n_page; };
  const int64_t n_running = options.n_at_once > 0 ? options.n_at_once : options.n_sequences;
  // Of a running sequence the windows before three lengths and before their last pages' begins, and a page to write
  // into; of a batch all its tokens; and of what is over a share that is dropped where others need it.
  constexpr int64_t kLengths = 3, kShareOfKept = 4;
  const int64_t of_length = in_pages(widest + n_page) + 1;
  const int64_t n_held = n_running * (kLengths * of_length + 1) + in_pages(options.n_batch_max);
  const bool keeps_more = n_running < options.n_sequences;
  return std::min(n_all, n_held + (keeps_more ? n_all / kShareOfKept : 0));
}

std::function<int64_t(int64_t position)> CacheWindows::seen() const {
  if (empty()) return nullptr;
  return [windows = *this](int64_t position) { return windows.first_seen(position); };
}

}  // namespace assay::ops
