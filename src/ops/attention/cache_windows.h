// Which layers of a cache are looked back at over a window or a chunk alone, and what of them a token still sees: what
// lies before it may be given back (pages/page_tables.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::ops {

class CacheWindows {
 public:
  CacheWindows() = default;
  explicit CacheWindows(const Plan& plan);

  // Of Plan::cache_layers: nothing but attention that is causal and has a window or chunks reads it.
  bool has_window(size_t layer) const noexcept { return layer < has_window_.size() && has_window_[layer] != 0; }
  bool empty() const noexcept { return attentions_.empty(); }
  // The first position that a token at this one sees in any layer with a window.
  int64_t first_seen(int64_t position) const noexcept;
  // Pages of n_page positions that the layers with a window need for what the options ask for, at most as many as the
  // others.
  int64_t n_pages(const ExecutorOptions& options, int64_t n_page) const noexcept;
  std::function<int64_t(int64_t position)> seen()
      const;  // the same, for pages::CacheTables; empty where no layer has a window

 private:
  std::vector<uint8_t> has_window_;
  std::vector<Attention> attentions_;  // one of each window and chunk
};

}  // namespace assay::ops
