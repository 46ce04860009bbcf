// Which tokens may be ranked after which outputs of a run, where the kernel that ranks them reads it: in page-locked
// memory.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/rows/rank.h"
#include "backend/cuda/runtime/device_memory.h"
#include "ops/plan/executor.h"

namespace assay::backend::cuda {

class AllowedRows {
 public:
  // Nothing that was queued before may still be at work on them. True: the memory is another one than before, which a
  // recorded graph does not know.
  bool set(std::span<const ops::AllowedTokens> outputs, int64_t n_outputs_max, int64_t vocab_size);
  void clear() noexcept { is_empty_ = true; }
  bool empty() const noexcept { return is_empty_; }
  AllowedWords words() const noexcept;  // of as many rows as a run has outputs; nothing where empty()

 private:
  bool is_empty_ = true;
  int32_t n_words_ = 0;  // of a row
  PinnedBuffer places_, words_;
};

}  // namespace assay::backend::cuda
