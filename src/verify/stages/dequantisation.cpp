// Rows of every tensor, decoded by the subject and by the formats' definitions (definitions.h),
// compared bit by bit after rounding to f32.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "engine/model_state.h"
#include "quant/format.h"
#include "verify/definitions.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {
namespace {

// The first, the last and rows spread between them.
std::set<int64_t> chosen_rows(int64_t n_rows, int64_t n_wanted) {
  std::set<int64_t> rows;
  for (int64_t i = 0; i < std::min(n_wanted, n_rows); ++i) {
    rows.insert(n_wanted == 1 ? 0
                              : static_cast<int64_t>(static_cast<double>(n_rows - 1) * static_cast<double>(i) /
                                                     static_cast<double>(n_wanted - 1)));
  }
  return rows;
}

// Two NaNs are the same, whatever their bits.
bool same(float found, float expected) {
  return std::bit_cast<uint32_t>(found) == std::bit_cast<uint32_t>(expected) ||
         (std::isnan(found) && std::isnan(expected));
}

struct RowCheck {
  int64_t n_wrong = 0, first_wrong = -1;
  float found = 0, expected = 0;  // at first_wrong
};

RowCheck check_row(const Subject& subject, const quant::Format& format, const std::byte* row, int64_t n_elements,
                   std::vector<float>& decoded) {
  const tensor::DTypeTraits& t = tensor::traits(format.dtype);
  decoded.assign(static_cast<size_t>(n_elements), std::nanf(""));
  subject.decode_row(format, row, n_elements, decoded.data());
  RowCheck check;
  for (int64_t j = 0; j < n_elements; ++j) {
    const std::byte* block = row + j / t.block_elements * t.block_bytes;
    const auto expected = static_cast<float>(defined_value(format.dtype, block, j % t.block_elements));
    const float found = decoded[static_cast<size_t>(j)];
    if (same(found, expected)) continue;
    if (check.n_wrong++ == 0) {
      check.first_wrong = j;
      check.found = found;
      check.expected = expected;
    }
  }
  return check;
}

}  // namespace

VerifyStage check_dequantisation(const Subject& subject, const StageRun& run) {
  return run_stage(run, "dequantisation", "Dequantisation", [&](Findings& findings) {
    const ops::Plan& plan = subject.model->state().built.plan;
    const int64_t n_rows_wanted = run.quick ? 3 : 16;
    std::map<std::string_view, int64_t> rows_of;  // by format
    std::vector<float> decoded;
    int64_t n_rows = 0, n_values = 0, n_done = 0;
    for (const ops::Weight& weight : plan.weights) {
      end_if_cancelled(run);
      const quant::Format* format = quant::find_format(weight.view.dtype);
      const tensor::DTypeTraits& t = tensor::traits(weight.view.dtype);
      const int64_t cols = weight.view.shape.cols();
      for (const int64_t row : chosen_rows(weight.view.shape.rows(), n_rows_wanted)) {
        const RowCheck check = check_row(subject, *format, weight.view.row(row), cols, decoded);
        ++n_rows;
        n_values += cols;
        ++rows_of[t.name];
        if (check.n_wrong == 0) continue;
        const int64_t block = check.first_wrong / t.block_elements;
        findings.fail(
            fmt::format("{} ({}), row {}: {} of {} elements differ from the format's definition, "
                        "first block {}, element {}: "
                        "found {}, needs {}",
                        weight.name, t.name, row, check.n_wrong, cols, block, check.first_wrong % t.block_elements,
                        shown_value(check.found), shown_value(check.expected)));
      }
      subject.model->state().file.drop(weight.view.data);
      show_progress(run, ++n_done, static_cast<int64_t>(plan.weights.size()));
    }
    std::string formats;
    for (const auto& [name, n] : rows_of)
      formats += fmt::format("{}{} ({})", formats.empty() ? "" : ", ", name, plural(n, "row"));
    findings.summary(fmt::format("{} values of {} against their formats' definitions, bit by bit: {}", n_values,
                                 plural(static_cast<int64_t>(plan.weights.size()), "tensor"), formats));
  });
}

}  // namespace assay::verify
