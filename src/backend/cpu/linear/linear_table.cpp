// See linear_table.h.
#include "backend/cpu/linear/linear_table.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "backend/cpu/sets/kernel_set.h"

namespace assay::backend::cpu {

WeightKind weight_kind(const LinearTask& task) noexcept {
  if (task.as_f32) return WeightKind::floats;
  return task.format->activation == quant::Activation::a32 ? WeightKind::blocks : WeightKind::superblocks;
}

bool LinearRow::takes(const LinearTask& task) const noexcept {
  if (weights != weight_kind(task) || task.k < k_min || task.k % k_step != 0) return false;
  return (planes == 0 || weights == WeightKind::floats || planes == task.x.planes) && kernel(task).is_there();
}

std::span<const LinearRow> linear_table(Kernels set) noexcept {
  const KernelSetParts* functions = functions_of(set);
  return functions == nullptr ? std::span<const LinearRow>() : functions->linear_rows;
}

LinearChoice::LinearChoice(Kernels set, const LinearTask& task, std::string_view first) {
  std::vector<LinearRow> wanted;
  std::ranges::copy_if(linear_table(set), std::back_inserter(wanted),
                       [&](const LinearRow& row) { return row.name == first; });
  std::ranges::copy_if(linear_table(set), std::back_inserter(wanted),
                       [](const LinearRow& row) { return row.is_wanted == nullptr || row.is_wanted(); });
  add_ranges(set, wanted, task);
}

LinearChoice::LinearChoice(Kernels set, const LinearRow& row, const LinearTask& task) {
  add_ranges(set, {&row, 1}, task);
}

// A row's, for any number of tokens.
LinearRange LinearChoice::range_of(Kernels set, const LinearRow& row, const LinearTask& task) noexcept {
  LinearRange range;
  range.name = row.name;
  range.kernel = row.kernel(task);
  if (range.kernel.vector == nullptr) return range;
  const KernelSetParts& functions = *functions_of(set);
  range.layout.walk = row.walk;
  range.layout.group_lanes = functions.superblock_lanes;
  range.layout.joined =
      task.x.planes == 2 && functions.joins_planes != nullptr && functions.joins_planes(task.format->dtype);
  return range;
}

// Cuts at every bound of a row that takes the task; between two cuts the first row that covers them has the range.
void LinearChoice::add_ranges(Kernels set, std::span<const LinearRow> rows, const LinearTask& task) {
  std::vector<const LinearRow*> taking;
  std::vector<int64_t> cuts = {1};
  for (const LinearRow& row : rows) {
    if (!row.takes(task)) continue;
    taking.push_back(&row);
    cuts.push_back(row.tokens_min);
    if (row.tokens_max < kAnyTokens) cuts.push_back(row.tokens_max + 1);
  }
  std::ranges::sort(cuts);
  for (const int64_t begin : cuts) {
    const auto found = std::ranges::find_if(
        taking, [&](const LinearRow* row) { return row->tokens_min <= begin && begin <= row->tokens_max; });
    LinearRange range = found == taking.end() ? LinearRange{} : range_of(set, **found, task);
    range.tokens_min = begin;
    add(range);
  }
}

size_t LinearChoice::scratch_bytes(const LinearTask& task) const noexcept {
  size_t bytes = 0;
  for (const LinearRange& range : ranges()) {
    if (range.tokens_min > task.n_tokens) break;
    LinearTask largest = task;
    largest.n_tokens = std::min(task.n_tokens, range.tokens_max);
    if (range.kernel.vector != nullptr) bytes = std::max(bytes, gemv_scratch_bytes(largest));
    if (range.kernel.matrix.run != nullptr) bytes = std::max(bytes, range.kernel.matrix.scratch_bytes(largest));
  }
  return bytes;
}

int64_t LinearChoice::row_step(int64_t n_tokens_max) const noexcept {
  int64_t step = 1;
  for (const LinearRange& range : ranges()) {
    if (range.tokens_min <= n_tokens_max && range.kernel.matrix.run != nullptr)
      step = std::max(step, range.kernel.matrix.row_step);
  }
  return step;
}

}  // namespace assay::backend::cpu
