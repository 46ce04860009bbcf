// See against_outliers.h.
#include "verify/against_outliers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace assay::verify {
namespace {

constexpr double kBeyond = 10;       // how far logits may lie beyond what is explained
constexpr double kErrorMin = 1e-12;  // relative; below it the float64 chain's own rounding counts

// Roundings of different ops are independent: their squares add.
double root_of_squares(const SourceFigures& source, double OpFigures::*figure) {
  double squares = 0;
  for (const OpFigures& op : source.ops) squares += (op.*figure) * (op.*figure);
  return std::sqrt(squares);
}

// How much of the error that their ops make arrives at the logits: a property of the model, taken
// from the sources other than `source`.
std::optional<double> amplification(std::span<const SourceFigures> sources, const SourceFigures& source) {
  std::vector<double> found;
  for (const SourceFigures& other : sources) {
    const double made = root_of_squares(other, &OpFigures::local_error);
    if (&other != &source && made > kErrorMin && other.logits_error > 0) found.push_back(other.logits_error / made);
  }
  if (found.empty()) return std::nullopt;
  std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(found.size() / 2), found.end());
  return found[found.size() / 2];
}

bool reads_weights(const OpFigures& op) { return op.kind == "linear" || op.kind == "rms_norm" || op.kind == "embed"; }

// The sign of another file: every op without weights is right, and most products are not.
bool has_other_weights(const SourceFigures& source) {
  int64_t n_linear = 0, n_linear_outside = 0;
  for (const OpFigures& op : source.ops) {
    if (!reads_weights(op) && op.n_outside > 0) return false;
    if (op.kind == "linear") {
      ++n_linear;
      if (op.n_outside > 0) ++n_linear_outside;
    }
  }
  return n_linear_outside > 1 && 2 * n_linear_outside > n_linear;
}

std::string shown_place(const Place& place) {
  std::string text = fmt::format("{}, ", place.op);
  text += place.position >= 0 ? fmt::format("position {} (token {})", place.position, place.token)
                              : fmt::format("row {}", place.row);
  if (place.head >= 0) text += fmt::format(", head {}", place.head);
  const double error = std::abs(place.found - place.expected);
  return text + fmt::format(
                    ", element {}: found {:.9g}, expected {:.9g} within {:.3g}, outside by a "
                    "factor of {:.3g}",
                    place.element, place.found, place.expected, place.bound,
                    place.bound > 0 ? error / place.bound : INFINITY);
}

}  // namespace

void mark_outliers(std::span<SourceFigures> sources) {
  bool is_any_broken = false;
  for (SourceFigures& source : sources) {
    source.outlier = source.first_failure.has_value();
    is_any_broken = is_any_broken || source.outlier;
  }
  if (is_any_broken) return;
  const auto farthest =
      std::max_element(sources.begin(), sources.end(),
                       [](const SourceFigures& a, const SourceFigures& b) { return a.logits_error < b.logits_error; });
  if (farthest == sources.end() || farthest->logits_error < kErrorMin) return;
  const std::optional<double> share = amplification(sources, *farthest);
  if (!share) return;
  farthest->outlier = farthest->logits_error > kBeyond * *share * root_of_squares(*farthest, &OpFigures::bound);
}

std::vector<std::string> describe_source(const SourceFigures& source) {
  std::vector<std::string> lines;
  const std::string logits =
      source.logits_error < 0 ? "no logits" : fmt::format("logits {:.2g} from float64", source.logits_error);
  if (source.first_failure) {
    const int64_t n_outside =
        std::count_if(source.ops.begin(), source.ops.end(), [](const OpFigures& op) { return op.n_outside > 0; });
    lines.push_back(fmt::format("{}: first outside of its bound: {}", source.name, shown_place(*source.first_failure)));
    lines.push_back(
        fmt::format("{}: {} of {} ops outside of their bounds, {}", source.name, n_outside, source.ops.size(), logits));
    if (has_other_weights(source)) {
      lines.push_back(
          fmt::format("{}: products are outside and ops without weights are not: it ran another file (another "
                      "quantisation, or wrongly "
                      "converted weights)",
                      source.name));
    }
  } else {
    // Of an addition the bound is its one rounding, which some element always meets nearly.
    const auto judged = [](const OpFigures& op) { return op.kind == "add" ? -1 : op.worst_ratio; };
    const auto worst = std::max_element(source.ops.begin(), source.ops.end(),
                                        [&](const OpFigures& a, const OpFigures& b) { return judged(a) < judged(b); });
    const std::string largest = worst == source.ops.end() ? ""
                                                          : fmt::format(", the largest error {:.2g} of its bound ({})",
                                                                        worst->worst_ratio, worst->op);
    lines.push_back(
        fmt::format("{}: all {} ops within their bounds{}, {}", source.name, source.ops.size(), largest, logits));
    if (source.outlier)
      lines.push_back(fmt::format("{}: its logits lie beyond what the bounds of its ops explain", source.name));
  }
  for (const Cause& cause : source.causes) {
    lines.push_back(fmt::format("{}: {} {} [{}]", source.name,
                                cause.reproduces ? "reproduced by:" : "resembles:", cause.text, cause.faults));
  }
  return lines;
}

}  // namespace assay::verify
