// Known ways to carry a convolution's last rows from one run to the next wrongly.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "faults/table.h"
#include "ops/state/causal_conv.h"

namespace assay::faults::dictionary {
namespace {

// The input of a column, `back` tokens before the row; 0 is the row itself.
using Past = std::function<double(int64_t row, int64_t back, int64_t column)>;

int64_t kernel_of(const Case& c) { return c.view(c.record<ops::CausalConv>().w).shape.elements() / c.failed.width; }

// Rows of the sequence in this batch before the row; what lies before those was kept: [kernel - 1][units of 32
// columns].
double kept(const Case& c, int64_t row, int64_t back, int64_t column) {  // back: 1 is the last row that was kept
  const auto found = c.failed.state_before.find(c.sequence(row));
  const int64_t at = kernel_of(c) - 1 - back;
  if (found == c.failed.state_before.end() || at < 0 || back < 1) return 0;
  const int64_t unit = (kernel_of(c) - 1) * ops::kConvColumns;
  const auto i =
      static_cast<size_t>(column / ops::kConvColumns * unit + at * ops::kConvColumns + column % ops::kConvColumns);
  return i < found->second.size() ? found->second[i] : 0;
}

int64_t row_before(const Case& c, int64_t row, int64_t back) {  // -1: it is not of this batch
  for (int64_t t = row; t >= 0; --t) {
    if (c.sequence(t) == c.sequence(row) && c.position(t) == c.position(row) - back) return t;
  }
  return -1;
}

struct ConvRule {
  int64_t shifted = 0;  // kept rows are taken as many places further back
  bool keeps = true, bias = true, reversed = false;
};

void offer(const Case& c, Sink& out, std::string text, ConvRule rule) {
  const auto& op = c.record<ops::CausalConv>();
  out.add_rows(std::move(text), [&c, rule, kernel = kernel_of(c), w = c.vector(op.w),
                                 b = op.bias == ops::kNone ? std::vector<double>() : c.vector(op.bias)](int64_t row,
                                                                                                        double* y) {
    for (int64_t j = 0; j < c.failed.width; ++j) {
      double sum = rule.bias && !b.empty() ? b[static_cast<size_t>(j)] : 0;
      for (int64_t k = 0; k < kernel; ++k) {
        const int64_t back = kernel - 1 - k, from = row_before(c, row, back);
        const int64_t n_inside = c.position(row) - c.batch_start(row);  // rows of the batch before this one
        const double x = from >= 0 ? c.a(from)[j] : rule.keeps ? kept(c, row, back - n_inside + rule.shifted, j) : 0;
        sum += w[static_cast<size_t>(j * kernel + (rule.reversed ? back : k))] * x;
      }
      y[j] = sum;
    }
  });
}

void offer_tail(const Case& c, Sink& out) {
  offer(c, out, "the rows that the convolution keeps lie one place too far back: zeros stand where the newest belongs",
        {-1});
  offer(c, out, "the rows that the convolution keeps lie one place too near: the newest is lost", {1});
  offer(c, out, "the rows before this run are taken as zeros: the convolution keeps nothing", {0, false});
}

void offer_formula(const Case& c, Sink& out) {
  offer(c, out, "the kernel is applied back to front", {0, true, true, true});
  if (c.record<ops::CausalConv>().bias != ops::kNone)
    offer(c, out, "the convolution's bias is not added", {0, true, false});
}

constexpr Entry kEntries[] = {{"conv_tail", "", offer_tail}, {"conv_kernel", "", offer_formula}};

}  // namespace

std::span<const Entry> conv_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
