// A trace as a table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/trace.h"

namespace assay {
namespace {

constexpr const char* kBars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

std::string bars(const std::array<int64_t, kTraceBins>& counts) {
  const int64_t largest = *std::max_element(counts.begin(), counts.end());
  std::string text;
  for (const int64_t count : counts) {
    text += kBars[count == 0 ? 0
                             : std::max<int64_t>(1, static_cast<int64_t>(8.0 * static_cast<double>(count) /
                                                                         static_cast<double>(largest)))];
  }
  return text;
}

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  return fmt::format("{:.4g}", value);
}

std::string not_finite(const OpTrace& op) {
  if (op.n_nan == 0 && op.n_infinite == 0) return "";
  std::string text;
  if (op.n_nan > 0) text += fmt::format("{} nan", op.n_nan);
  if (op.n_infinite > 0) text += fmt::format("{}{} inf", text.empty() ? "" : ", ", op.n_infinite);
  return text;
}

}  // namespace

std::string Trace::to_text() const {
  size_t name_width = 2, shape_width = 5, bad_width = 0;
  for (const OpTrace& op : ops) {
    name_width = std::max(name_width, op.op.size());
    shape_width = std::max(shape_width, fmt::format("{}x{}", op.n_rows, op.width).size());
    const size_t bad = not_finite(op).size();
    if (bad > 0) bad_width = std::max<size_t>(std::max(bad_width, bad), 10);
  }
  std::string text = fmt::format("{:<{}}  {:>{}} {:>10} {:>10} {:>10} {:>10} {:>7}", "op", name_width, "shape",
                                 shape_width, "mean", "rms", "smallest", "largest", "zeros");
  if (bad_width > 0) text += fmt::format("  {:<{}}", "not finite", bad_width);
  if (has_histogram) text += fmt::format("  {:<{}}", "2^-24 .. 2^8", kTraceBins);
  const bool any_first = std::any_of(ops.begin(), ops.end(), [](const OpTrace& op) { return !op.first.empty(); });
  text += any_first ? "  first values\n" : "\n";
  for (const OpTrace& op : ops) {
    text += fmt::format("{:<{}}  {:>{}} {:>10} {:>10} {:>10} {:>10} {:>7}", op.op, name_width,
                        fmt::format("{}x{}", op.n_rows, op.width), shape_width, number(op.mean), number(op.rms),
                        number(op.smallest), number(op.largest), op.n_zero);
    if (bad_width > 0) text += fmt::format("  {:<{}}", not_finite(op), bad_width);
    if (has_histogram) text += "  " + bars(op.histogram);
    if (any_first) text += ' ';
    for (const double value : op.first) text += fmt::format(" {:>9}", number(value));
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text + fmt::format("\nlogits {}\nkv     {}\n", logits_digest, kv_digest);
}

}  // namespace assay
