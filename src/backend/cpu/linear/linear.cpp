// The sets of kernels, and how a product's rows are run: by the range that was chosen for it, or by the scalar
// reference.
#include "backend/cpu/linear/linear.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/linear/linear_thread.h"
#include "backend/cpu/sets/kernel_set.h"

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

std::vector<Kernels> find_sets() {
  std::vector<Kernels> sets = {Kernels::reference};
  for (const KernelSetParts& functions : sets_of_build()) {
    if (functions.can_run()) sets.push_back(functions.set);
  }
  return sets;
}

}  // namespace

std::span<const Kernels> kernel_sets() noexcept {
  static const std::vector<Kernels> sets = find_sets();
  return sets;
}

const KernelSetParts* functions_of(Kernels set) noexcept {
  for (const KernelSetParts& functions : sets_of_build()) {
    if (functions.set == resolved(set)) return &functions;
  }
  return nullptr;
}

void LinearThread::rows(const LinearRange& range, const LinearTask& task, int64_t row_begin, int64_t row_end) noexcept {
  const LinearKernel& kernel = range.kernel;
  if (kernel.matrix.run != nullptr) {
    const bool again = laid_by_ == kernel.matrix.run && laid_out_ == task.x.q && kernel.matrix.run_again != nullptr;
    laid_by_ = kernel.matrix.run;
    laid_out_ = task.x.q;
    return (again ? kernel.matrix.run_again : kernel.matrix.run)(task, row_begin, row_end, scratch_);
  }
  if (kernel.vector == nullptr) return linear_rows_reference(task, row_begin, row_end);
  for (int64_t token = 0; token < task.n_tokens;) {
    const int tokens = gemv_tokens(task, token);
    const bool is_laid_out =
        laid_by_ == nullptr && laid_out_ == task.x.q && (!range.layout.joined || operand_.joined != nullptr);
    if (!is_laid_out) operand_ = gemv_prepare(task, token, tokens, range.layout, scratch_);
    laid_by_ = nullptr;
    laid_out_ = tokens == task.n_tokens ? task.x.q : nullptr;
    kernel.vector(task, operand_, token, row_begin, row_end);
    token += tokens;
  }
}

void linear_rows(Kernels set, const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) {
  LinearThread(scratch).rows(LinearChoice(set, task).at(task.n_tokens), task, row_begin, row_end);
}

size_t linear_scratch_bytes(Kernels set, const LinearTask& task) { return LinearChoice(set, task).scratch_bytes(task); }

void quantise_rows(Kernels set, tensor::ConstMat x, const quant::Activations& out, int64_t row_begin,
                   int64_t row_end) noexcept {
  if (const KernelSetParts* functions = functions_of(set)) return functions->quantise_rows(x, out, row_begin, row_end);
  for (int64_t r = row_begin; r < row_end; ++r) quant::quantise_row_ref(x.row(r), out, r);
}

}  // namespace assay::backend::cpu
