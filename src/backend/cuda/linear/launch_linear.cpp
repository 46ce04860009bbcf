// See launch_linear.h.
#include "backend/cuda/linear/launch_linear.h"

#include <iterator>

namespace assay::backend::cuda {
namespace {

struct Call {
  const LinearRow& row;
  const BatchForm& form;
  std::span<const LinearTask> linears;
  const quant::Activations& x;
  int64_t n_tokens;
  const Launching& on;
};

void group_tiles(const Call& c) { linear_wgmma(c.linears, c.row.columns, c.x, c.n_tokens, c.on.hopper, c.on.queue); }

void batch_tiles(const Call& c) { linear_batch(c.linears, c.form, c.x, c.n_tokens, c.on.queue); }

void vector(const Call& c) { linear_gemv(c.linears, c.x, c.n_tokens, c.on.queue); }
void tiles(const Call& c) { linear_mma(c.linears, c.x, c.n_tokens, c.on.queue); }
void any_format(const Call& c) {
  for (const LinearTask& t : c.linears) linear_any_format(*t.w, c.x, c.n_tokens, t.bias, t.y, c.on.queue.stream);
}

constexpr void (*kLaunch[])(const Call&) = {group_tiles, batch_tiles, vector, tiles,
                                            any_format};  // as LinearKernel counts
static_assert(std::size(kLaunch) == kNLinearKernels);

}  // namespace

LinearMatrix as_linear_matrix(const Matrix& w) noexcept { return {w.dtype, w.rows, w.parts.n > 1}; }

void launch_linears(const LinearRow& row, const BatchForm& form, std::span<const LinearTask> linears,
                    const quant::Activations& x, int64_t n_tokens, const Launching& on) {
  kLaunch[static_cast<size_t>(row.kernel)]({row, form, linears, x, n_tokens, on});
}

}  // namespace assay::backend::cuda
