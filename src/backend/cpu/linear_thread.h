// One thread's part of the matrix products of a step, call by call.
#pragma once

#include "backend/cpu/gemv_prepare.h"

namespace assay::backend::cpu {

// What a call lays out of the activations serves the next ones that read the same, so these must not change while it lives. scratch: as in linear_rows, for
// the largest of the tasks.
class LinearThread {
 public:
  LinearThread(KernelSet set, std::byte* scratch) noexcept : set_(set), scratch_(scratch) {}
  void rows(const LinearTask& task, int64_t row_begin, int64_t row_end) noexcept;

 private:
  KernelSet set_;
  std::byte* scratch_;
  const int8_t* laid_out_ = nullptr;  // activations of which scratch holds all tokens
  GemvOperand operand_;
};

}  // namespace assay::backend::cpu
