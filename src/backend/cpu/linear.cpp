// Choice of kernel for a matrix product, and the scalar reference that stands behind every empty slot.
#include "backend/cpu/linear.h"

#include <algorithm>

#include <vector>

#include "backend/cpu/linear_thread.h"
#include "backend/cpu/set_functions.h"

namespace assay::backend::cpu {

namespace {

void linear_rows_reference(const LinearTask& task, int64_t row_begin, int64_t row_end) noexcept {
  for (int64_t r = row_begin; r < row_end; ++r) {
    const std::byte* row = task.weights + r * task.row_bytes;
    for (int64_t t = 0; t < task.n_tokens; ++t) {
      const float dot = task.as_f32 ? quant::dot_f32_ref(*task.format, row, task.x_f32.row(t), task.k)
                                    : quant::dot_ref(*task.format, row, task.x, t);
      task.y(t, r) = task.bias == nullptr ? dot : dot + task.bias[r];
    }
  }
}

GemvKernel find_gemv(KernelSet set, const LinearTask& task) noexcept {
  const SetFunctions* functions = functions_of(set);
  return functions == nullptr ? nullptr : functions->gemv(task);
}

FewKernel find_few(KernelSet set, const LinearTask& task) noexcept {
  const SetFunctions* functions = functions_of(set);
  return functions == nullptr || functions->few == nullptr ? FewKernel{} : functions->few(task);
}

GemmKernel find_gemm(KernelSet set, const LinearTask& task) noexcept {
  const FewKernel few = find_few(set, task);
  if (few.kernel.run != nullptr && task.n_tokens >= few.tokens_min && task.n_tokens <= few.tokens_max) return few.kernel;
  const SetFunctions* functions = functions_of(set);
  return functions == nullptr ? GemmKernel{} : functions->gemm(task);
}

std::vector<KernelSet> find_sets() {
  std::vector<KernelSet> sets = {KernelSet::reference};
  for (const SetFunctions& functions : sets_of_build()) {
    if (functions.can_run()) sets.push_back(functions.set);
  }
  return sets;
}

}  // namespace

std::string_view name(KernelSet set) noexcept {
  switch (set) {
    case KernelSet::reference: return "reference";
    case KernelSet::avx2: return "avx2";
    case KernelSet::avx512: return "avx512";
    case KernelSet::neon: return "neon";
    case KernelSet::neon_i8mm: return "neon-i8mm";
  }
  return "?";
}

std::span<const KernelSet> kernel_sets() noexcept {
  static const std::vector<KernelSet> sets = find_sets();
  return sets;
}

const SetFunctions* functions_of(KernelSet set) noexcept {
  for (const SetFunctions& functions : sets_of_build()) {
    if (functions.set == set) return &functions;
  }
  return nullptr;
}

void LinearThread::rows(const LinearTask& task, int64_t row_begin, int64_t row_end) noexcept {
  if (const GemmKernel gemm = find_gemm(set_, task); gemm.run != nullptr) {
    laid_out_ = nullptr;
    return gemm.run(task, row_begin, row_end, scratch_);
  }
  const GemvKernel gemv = find_gemv(set_, task);
  if (gemv == nullptr) return linear_rows_reference(task, row_begin, row_end);
  const SetFunctions& set = *functions_of(set_);
  const GemvLayout layout = {set.superblock_lanes, task.x.planes == 2 && set.joins_planes != nullptr && set.joins_planes(task.format->dtype)};
  for (int64_t token = 0; token < task.n_tokens;) {
    const int tokens = gemv_tokens(task, token);
    if (laid_out_ != task.x.q || (layout.joined && operand_.joined == nullptr)) operand_ = gemv_prepare(task, token, tokens, layout, scratch_);
    laid_out_ = tokens == task.n_tokens ? task.x.q : nullptr;
    gemv(task, operand_, token, row_begin, row_end);
    token += tokens;
  }
}

void linear_rows(KernelSet set, const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  LinearThread(set, scratch).rows(task, row_begin, row_end);
}

size_t linear_scratch_bytes(KernelSet set, const LinearTask& task) noexcept {
  size_t bytes = find_gemv(set, task) != nullptr ? gemv_scratch_bytes(task) : 0;
  if (const GemmKernel gemm = find_gemm(set, task); gemm.run != nullptr) bytes = std::max(bytes, gemm.scratch_bytes(task));
  if (const FewKernel few = find_few(set, task); few.kernel.run != nullptr && task.n_tokens >= few.tokens_min) {
    LinearTask largest = task;
    largest.n_tokens = std::min(task.n_tokens, few.tokens_max);
    bytes = std::max(bytes, few.kernel.scratch_bytes(largest));
  }
  return bytes;
}

int64_t linear_row_step(KernelSet set, const LinearTask& task) noexcept {
  const GemmKernel gemm = find_gemm(set, task);
  return gemm.run != nullptr ? gemm.row_step : 1;
}

void quantise_rows(KernelSet set, tensor::ConstMat x, const quant::Activations& out, int64_t row_begin, int64_t row_end) noexcept {
  if (const SetFunctions* functions = functions_of(set)) return functions->quantise_rows(x, out, row_begin, row_end);
  for (int64_t r = row_begin; r < row_end; ++r) quant::quantise_row_ref(x.row(r), out, r);
}

}  // namespace assay::backend::cpu
