// One thread's part of the matrix products of a step, call by call.
#pragma once

#include "backend/cpu/linear/linear_table.h"

namespace assay::backend::cpu {

// What a call lays out of the activations serves the next ones that read the same, so these must not change while it
// lives. scratch: as LinearChoice::scratch_bytes says, for the largest of the tasks; aligned to 64.
class LinearThread {
 public:
  explicit LinearThread(std::byte* scratch) noexcept : scratch_(scratch) {}
  // Writes y[:, row_begin..row_end) by the range that takes the task's tokens. Threads may share a task on disjoint
  // rows. row_begin is a multiple of LinearChoice::row_step; row_end is one too, or the number of rows.
  void rows(const LinearRange& range, const LinearTask& task, int64_t row_begin, int64_t row_end) noexcept;

 private:
  std::byte* scratch_;
  const int8_t* laid_out_ = nullptr;             // activations of which scratch holds all tokens
  decltype(GemmKernel::run) laid_by_ = nullptr;  // as this kernel wants them; null: as operand_ says
  GemvOperand operand_;
};

}  // namespace assay::backend::cpu
