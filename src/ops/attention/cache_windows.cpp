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

std::function<int64_t(int64_t position)> CacheWindows::seen() const {
  if (empty()) return nullptr;
  return [windows = *this](int64_t position) { return windows.first_seen(position); };
}

}  // namespace assay::ops
