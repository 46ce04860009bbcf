// A VerifyReport for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "assay/verify.h"
#include "assay/verify_page.h"
#include "base/shown.h"
#include "trace/token_text.h"

namespace assay {
namespace {

constexpr size_t kOpsShown = 8, kCausesShown = 5, kTokensShown = 5;

std::string_view word(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return "ok";
    case Verdict::warn: return "warn";
    case Verdict::fail: return "FAIL";
    case Verdict::skip: return "skip";
  }
  return "?";
}

std::string token_with_text(int32_t id, const TokenTexts& texts) {
  return trace::token_with_text(id, texts ? texts(id) : std::string());
}

std::string place_text(const Place& place, const TokenTexts& texts) {
  std::string text = place.op;
  if (place.layer >= 0) text += fmt::format(", layer {}", place.layer);
  text += fmt::format(", row {}", place.row);
  if (place.position >= 0)
    text += fmt::format(" (position {}, token {})", place.position, token_with_text(place.token, texts));
  if (place.head >= 0) text += fmt::format(", head {}", place.head);
  text += fmt::format(", element {}: found {:.9g}, needs {:.9g}", place.element, place.found, place.expected);
  const double error = std::abs(place.found - place.expected);
  if (place.bound > 0 && std::isfinite(error)) {
    text += fmt::format(" to within {:.3g}: {:.3g} times outside its bound", place.bound, error / place.bound);
  } else {
    text += fmt::format(" to within {:.3g}", place.bound);
  }
  return text;
}

void append_ops(std::string& out, const VerifyReport& report) {
  if (report.ops.empty()) return;
  std::vector<const OpFigures*> worst;
  for (const OpFigures& op : report.ops) worst.push_back(&op);
  const size_t n = std::min(kOpsShown, worst.size());
  std::partial_sort(worst.begin(), worst.begin() + static_cast<std::ptrdiff_t>(n), worst.end(),
                    [](const OpFigures* a, const OpFigures* b) {
                      if (a->n_non_finite != b->n_non_finite) return a->n_non_finite > b->n_non_finite;
                      return a->worst_ratio > b->worst_ratio;
                    });
  auto to = std::back_inserter(out);
  fmt::format_to(to,
                 "\nOps nearest to their bound, of {} (median of bound / error {:.3g}; the one rounding of an add may "
                 "use all of it):\n",
                 report.ops.size(), report.median_slack);
  fmt::format_to(to, "  {:<28} {:<14} {:>13} {:>11} {:>11} {:>11}\n", "op", "kind", "error / bound", "local error",
                 "bound", "cumulative");
  for (size_t i = 0; i < n; ++i) {
    const OpFigures& op = *worst[i];
    const std::string cumulative = op.cumulative_error < 0 ? "-" : fmt::format("{:.2e}", op.cumulative_error);
    fmt::format_to(to, "  {:<28} {:<14} {:>13.3g} {:>11.2e} {:>11.2e} {:>11}{}\n", op.op, op.kind, op.worst_ratio,
                   op.local_error, op.bound, cumulative,
                   op.n_non_finite > 0 ? fmt::format("  {} not finite", op.n_non_finite) : "");
  }
}

void append_tokens(std::string& out, const VerifyReport& report, const TokenTexts& texts) {
  if (report.tokens.empty()) return;
  std::vector<const TokenRisk*> turned;
  double kl_max = 0, share_max = 0;
  for (const TokenRisk& token : report.tokens) {
    if (token.turned()) turned.push_back(&token);
    kl_max = std::max(kl_max, token.kl_divergence);
    if (token.gap > 0) share_max = std::max(share_max, token.error / token.gap);
  }
  auto to = std::back_inserter(out);
  fmt::format_to(to,
                 "\nAgainst float64, {} of {} positions choose another token; KL divergence at "
                 "most {:.2e}; the error is at most {:.2g} of a "
                 "position's gap between its two best tokens\n",
                 turned.size(), report.tokens.size(), kl_max, share_max);
  for (size_t i = 0; i < std::min(kTokensShown, turned.size()); ++i) {
    const TokenRisk& token = *turned[i];
    fmt::format_to(to, "  position {}: token {} in place of {}; gap {:.3g}, error {:.3g}\n", token.position,
                   token_with_text(token.found_top, texts), token_with_text(token.oracle_top, texts), token.gap,
                   token.error);
  }
}

void append_causes(std::string& out, const std::vector<Cause>& causes) {
  auto to = std::back_inserter(out);
  for (size_t i = 0; i < std::min(kCausesShown, causes.size()); ++i) {
    const Cause& cause = causes[i];
    fmt::format_to(to, "{}: {} [{}{}{}]{}\n", cause.reproduces ? "Cause" : "Perhaps", cause.text, cause.id,
                   cause.faults.empty() ? "" : "; faults ", cause.faults,
                   cause.reproduces ? ", which gives the values found to within rounding"
                                    : fmt::format(", which leaves {:.2g} of the error", cause.residual));
  }
}

void append_against(std::string& out, const VerifyReport& report, const TokenTexts& texts) {
  if (report.against.empty()) return;
  auto to = std::back_inserter(out);
  fmt::format_to(to, "\nSources:\n");
  for (const SourceFigures& source : report.against) {
    fmt::format_to(to, "  {:<40} logits {:.2e} from float64{}\n", source.name, source.logits_error,
                   source.outlier ? ", the outlier" : "");
    if (source.first_failure) fmt::format_to(to, "    first wrong: {}\n", place_text(*source.first_failure, texts));
    std::string causes;
    append_causes(causes, source.causes);
    for (size_t at = 0; at < causes.size();) {
      const size_t end = causes.find('\n', at) + 1;
      out += "    " + causes.substr(at, end - at);
      at = end;
    }
  }
}

}  // namespace

std::string VerifyStage::to_text() const {
  std::string out = fmt::format("{:<5} {:<15} {}", word(verdict), title, summary);
  out += seconds >= 0.05 ? fmt::format("  ({:.1f} s)\n", seconds) : "\n";
  for (const std::string& line : details) out += fmt::format("{:22}{}\n", "", line);
  return out;
}

std::string VerifyReport::outcome_text() const { return verify_outcome(*this, {}); }

std::string verify_outcome(const VerifyReport& report, const TokenTexts& texts) {
  std::string out;
  if (report.first_failure)
    out += fmt::format("\nFirst wrong operation: {}\n", place_text(*report.first_failure, texts));
  if (!report.causes.empty()) out += report.first_failure ? "" : "\n";
  append_causes(out, report.causes);
  append_ops(out, report);
  append_tokens(out, report, texts);
  append_against(out, report, texts);
  const auto n_failed = std::count_if(report.stages.begin(), report.stages.end(),
                                      [](const VerifyStage& s) { return s.verdict == Verdict::fail; });
  const auto n_warned = std::count_if(report.stages.begin(), report.stages.end(),
                                      [](const VerifyStage& s) { return s.verdict == Verdict::warn; });
  const std::string outcome = n_failed > 0 ? fmt::format("FAILED: {} of {} stages", n_failed, report.stages.size())
                                           : std::string(report.cancelled ? "Cancelled" : "Passed");
  out += fmt::format("\n{}{} in {:.1f} s, {:.0f} MiB at most\n", outcome,
                     n_warned > 0 ? fmt::format(", {} with warnings", n_warned) : "", report.seconds,
                     static_cast<double>(report.peak_bytes) / (1 << 20));
  return out;
}

std::string VerifyReport::to_text() const {
  std::string out = fmt::format("{} ({}, {}): {}\n", model_name, architecture, weights_type, subject);
  for (const std::string& change : overrides) out += fmt::format("{}\n", change);
  for (const VerifyStage& stage : stages) out += stage.to_text();
  return out + outcome_text();
}

bool VerifyReport::passed() const noexcept {
  return !cancelled && std::none_of(stages.begin(), stages.end(),
                                    [](const VerifyStage& stage) { return stage.verdict == Verdict::fail; });
}

}  // namespace assay
