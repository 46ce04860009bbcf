// See html_sections.h.
#include "report/html_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "report/html.h"
#include "report/html_charts.h"

namespace assay::verify {
namespace {

constexpr size_t kDetailsShown = 100, kCausesShown = 12;

struct VerdictLook {
  std::string_view css_class, glyph, word;
};
VerdictLook look_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return {"pass", "✓", "passed"};
    case Verdict::warn: return {"warn", "!", "warning"};
    case Verdict::fail: return {"fail", "✕", "failed"};
    case Verdict::skip: return {"skip", "–", "skipped"};
  }
  return {"skip", "?", "unknown"};
}

size_t n_with(const VerifyReport& report, Verdict verdict) {
  return static_cast<size_t>(std::count_if(report.stages.begin(), report.stages.end(),
                                           [&](const auto& stage) { return stage.verdict == verdict; }));
}

bool only_text_failed(const VerifyReport& report) {
  return std::all_of(report.stages.begin(), report.stages.end(),
                     [](const auto& stage) { return stage.verdict != Verdict::fail || stage.id == "text"; });
}

std::string n_of(size_t n, std::string_view thing) { return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s"); }

std::string op_name(std::string_view name) { return "<code>" + escaped(name, 200) + "</code>"; }

// 338 " hills", or 338 alone.
std::string token_name(TokenId id, const VerifyPageFacts& facts) {
  const std::string text = facts.token_text ? facts.token_text(id) : std::string();
  return text.empty() ? fmt::format("{}", id) : fmt::format("{} <code>{}</code>", id, escaped(text, 60));
}

std::string place_line(const Place& place, const VerifyPageFacts& facts) {
  std::string text = op_name(place.op);
  if (place.layer >= 0) text += fmt::format(", layer {}", place.layer);
  text += fmt::format(", row {}", place.row);
  if (place.position >= 0)
    text += fmt::format(" (position {}, token {})", place.position, token_name(place.token, facts));
  if (place.head >= 0) text += fmt::format(", head {}", place.head);
  return text + fmt::format(", element {}", place.element);
}

std::string exact(double x) { return std::isfinite(x) ? fmt::format("{:.9g}", x) : figure(x); }

// Of an operation: does the fault give the values found? Of a file there are none, its text says how likely it is.
enum class CauseOf { operation, file };

std::string cause_block(const Cause& cause, CauseOf what) {
  std::string out = fmt::format("<div class=\"cause{}\"><p><strong>{}</strong> ", cause.reproduces ? " sure" : "",
                                escaped(cause.text));
  if (cause.reproduces) {
    out += "<span class=\"badge fail\">gives the values found</span>";
  } else if (what == CauseOf::operation) {
    out += fmt::format("<span class=\"badge skip\">leaves {} of the error</span>", factor(cause.residual));
  }
  out += "</p><p class=\"dim\">" + op_name(cause.id);
  if (!cause.faults.empty()) out += ", in the catalogue of faults: " + escaped(cause.faults, 200);
  return out + "</p></div>";
}

std::string causes_list(const std::vector<Cause>& causes, CauseOf what = CauseOf::operation) {
  std::string out;
  for (size_t i = 0; i < std::min(causes.size(), kCausesShown); ++i) out += cause_block(causes[i], what);
  if (causes.size() > kCausesShown)
    out += fmt::format("<p class=\"dim\">and {} more</p>", causes.size() - kCausesShown);
  return out;
}

std::string fact(std::string_view name, std::string_view value, bool wide = false) {
  if (value.empty()) return {};
  return fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>", wide ? " class=\"wide\"" : "", name, escaped(value));
}

std::string place_block(const Place& place, const VerifyPageFacts& facts) {
  const double error = std::abs(place.found - place.expected);
  const std::string times = place.bound > 0 || std::isnan(error) ? factor(error / place.bound) : "∞";
  std::string out = "<p>" + place_line(place, facts) + "</p><dl class=\"facts\">";
  out += fact("found", exact(place.found)) + fact("expected, in float64", exact(place.expected)) +
         fact("difference", figure(error));
  return out + fact("bound of its rounding", figure(place.bound)) + fact("times outside", times) + "</dl>";
}

std::string table_head(std::initializer_list<std::pair<std::string_view, bool>> columns) {
  std::string out = "<thead><tr>";
  for (const auto& [name, is_number] : columns)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", is_number ? " class=\"num\"" : "", name);
  return out + "</tr></thead>";
}

std::string number(std::string_view text) { return fmt::format("<td class=\"num\">{}</td>", text); }

// How near a position's error is to turning its choice; 1 reaches it: half of the gap on each of the two best.
double danger(const TokenRisk& token) {
  if (token.turned()) return std::numeric_limits<double>::infinity();
  if (std::isnan(token.error) || std::isnan(token.gap)) return std::numeric_limits<double>::infinity();
  return token.gap > 0 ? 2 * token.error / token.gap : (token.error > 0 ? std::numeric_limits<double>::infinity() : 0);
}

std::string token_row(const TokenRisk& token, const VerifyPageFacts& facts) {
  const bool near = danger(token) >= 1;
  const std::string_view word = token.turned() ? "another token" : (near ? "could turn" : "safe");
  std::string out = fmt::format("<tr{}>", token.turned() ? " class=\"bad\"" : "");
  out += number(fmt::format("{}", token.position)) + number(token_name(token.token, facts)) +
         number(token_name(token.oracle_top, facts)) + number(token_name(token.found_top, facts)) +
         number(figure(token.gap)) + number(figure(token.error)) + number(figure(token.kl_divergence));
  return out +
         fmt::format("<td class=\"word\">{}</td></tr>", span(token.turned() ? "fail" : (near ? "warn" : "pass"), word));
}

std::string token_table(const std::vector<const TokenRisk*>& tokens, size_t begin, size_t end,
                        const VerifyPageFacts& facts) {
  std::string out = "<div class=\"scroll\"><table>";
  out += table_head({{"position", true},
                     {"token", true},
                     {"best of float64", true},
                     {"best found", true},
                     {"gap", true},
                     {"error", true},
                     {"KL divergence", true},
                     {"choice", false}});
  out += "<tbody>";
  for (size_t i = begin; i < end; ++i) out += token_row(*tokens[i], facts);
  return out + "</tbody></table></div>";
}

std::string op_row(const OpFigures& op) {
  std::string out = fmt::format("<tr{}><td class=\"op\">{}</td><td>{}</td>", is_wrong(op) ? " class=\"bad\"" : "",
                                escaped(op.op, 200), escaped(op.kind, 60));
  out += number(fmt::format("{}", op.n_values)) + number(fmt::format("{}", op.n_outside)) +
         number(fmt::format("{}", op.n_non_finite)) + number(factor(op.worst_ratio)) + number(figure(op.local_error)) +
         number(figure(op.bound)) + number(op.cumulative_error < 0 ? "–" : figure(op.cumulative_error)) +
         number(figure(op.rms)) + number(figure(op.largest));
  return out + "</tr>";
}

// What is wrong with one of several sources; "" where nothing is.
std::string source_block(const SourceFigures& source, const VerifyPageFacts& facts) {
  if (!source.first_failure && source.causes.empty()) return {};
  std::string out = "<h3>" + escaped(source.name, 300) + "</h3>";
  if (source.first_failure) out += place_block(*source.first_failure, facts);
  out += causes_list(source.causes);
  return out + (source.ops.empty()
                    ? ""
                    : heat_map(source.ops, source.first_failure ? source.first_failure->op : std::string()));
}

std::string stage_block(const VerifyStage& stage) {
  const VerdictLook look = look_of(stage.verdict);
  std::string out = fmt::format(
      "<div class=\"stage\"><p class=\"word {}\">{} {}</p><p><strong>{}</strong></p><div class=\"found\"><p>{}</p>",
      look.css_class, look.glyph, look.word, escaped(stage.title, 200), escaped(stage.summary));
  if (stage.details.empty()) return out + "</div></div>";
  const bool is_long = stage.details.size() > 6;
  if (is_long)
    out += fmt::format("<details{}><summary>{}</summary>", stage.verdict == Verdict::fail ? " open" : "",
                       n_of(stage.details.size(), "line"));
  out += "<ul>";
  for (size_t i = 0; i < std::min(stage.details.size(), kDetailsShown); ++i)
    out += "<li>" + escaped(stage.details[i]) + "</li>";
  if (stage.details.size() > kDetailsShown)
    out += fmt::format("<li class=\"dim\">and {} more</li>", stage.details.size() - kDetailsShown);
  out += "</ul>";
  return out + (is_long ? "</details></div></div>" : "</div></div>");
}

}  // namespace

std::string banner_section(const VerifyReport& report) {
  const size_t n_failed = n_with(report, Verdict::fail), n_warned = n_with(report, Verdict::warn),
               n_skipped = n_with(report, Verdict::skip);
  const VerdictLook look = look_of(n_failed > 0 ? Verdict::fail : (n_warned > 0 ? Verdict::warn : Verdict::pass));
  const auto failed_source = std::find_if(report.against.begin(), report.against.end(),
                                          [](const SourceFigures& x) { return x.first_failure.has_value(); });
  const std::vector<Cause>* causes = &report.causes;
  std::string title;
  if (n_failed == 0) {
    title = n_warned > 0 ? "Nothing is wrong, something is odd" : "Nothing is wrong";
  } else if (report.first_failure) {
    title = "The first wrong operation is " + op_name(report.first_failure->op);
  } else if (failed_source != report.against.end()) {
    title = "The first wrong operation of " + escaped(failed_source->name, 120) + " is " +
            op_name(failed_source->first_failure->op);
    causes = &failed_source->causes;
  } else if (!report.causes.empty() && only_text_failed(report)) {
    title = "The operations are right, the file is suspected";
  } else {
    const auto failed = std::find_if(report.stages.begin(), report.stages.end(),
                                     [](const auto& x) { return x.verdict == Verdict::fail; });
    title = escaped(failed->title, 200) + " failed";
  }
  std::string out =
      fmt::format("<header class=\"verdict {}\"><div class=\"glyph\" aria-hidden=\"true\">{}</div><div><h1>{}</h1>",
                  look.css_class, look.glyph, title);
  out += fmt::format("<p>{}: {} of {} passed", escaped(report.model_name, 200), n_with(report, Verdict::pass),
                     n_of(report.stages.size(), "stage"));
  if (n_warned > 0) out += fmt::format(", {} with warnings", n_warned);
  if (n_failed > 0) out += fmt::format(", {} failed", n_failed);
  if (n_skipped > 0) out += fmt::format(", {} skipped", n_skipped);
  out += fmt::format(", in {}.</p>", seconds_text(report.seconds));
  const auto cause = std::find_if(causes->begin(), causes->end(), [](const Cause& c) { return c.reproduces; });
  if (cause != causes->end()) out += "<p><strong>Cause:</strong> " + escaped(cause->text) + "</p>";
  if (n_failed > 0 && !report.first_failure && causes == &report.causes && !causes->empty() && cause == causes->end()) {
    out += "<p>" + escaped(causes->front().text) + "</p>";
  }
  return out + "</div></header>";
}

std::string facts_section(const VerifyReport& report, const VerifyPageFacts& facts) {
  std::string out = "<dl class=\"facts\">";
  out += fact("file", report.model_path, true) + fact("SHA-256 of the file", facts.sha256, true);
  out += fact("verified", report.subject + (facts.quick ? "; short probes (--quick)" : ""), true);
  for (const std::string& change : report.overrides) out += fact("in the place of the file's metadata", change, true);
  out += fact("date", facts.date) + fact("machine", facts.machine) + fact("program", facts.program);
  out += fact("model", report.model_name) + fact("architecture", report.architecture) +
         fact("weights mostly", report.weights_type);
  if (report.median_slack > 0) out += fact("median of bound / error", factor(report.median_slack));
  if (report.peak_bytes > 0)
    out += fact("peak memory", fmt::format("{:.0f} MiB", static_cast<double>(report.peak_bytes) / (1 << 20)));
  return out + "</dl>";
}

std::string chain_section(const VerifyReport& report) {
  if (report.stages.empty()) return {};
  std::string out = "<section><h2>The chain</h2><ol class=\"chain\">";
  for (const VerifyStage& stage : report.stages) {
    const VerdictLook look = look_of(stage.verdict);
    out += fmt::format(
        "<li class=\"edge {0}\"><b>{1}</b><small><span class=\"{0}\">{2} {3}</span><span>{4}</span></small></li>",
        look.css_class, escaped(stage.title, 60), look.glyph, look.word,
        stage.verdict == Verdict::skip ? "" : seconds_text(stage.seconds));
  }
  out += "</ol>";
  for (const VerifyStage& stage : report.stages) out += stage_block(stage);
  return out + "</section>";
}

std::string failure_section(const VerifyReport& report, const VerifyPageFacts& facts) {
  std::string out;
  if (report.first_failure) {
    out += "<section><h2>The first wrong operation</h2>" + place_block(*report.first_failure, facts);
    if (report.causes.empty())
      out += "<p class=\"dim\">No entry of the dictionary of known faults applies to it.</p></section>";
  }
  if (report.causes.empty()) return out;
  const bool sure =
      std::any_of(report.causes.begin(), report.causes.end(), [](const Cause& c) { return c.reproduces; });
  if (!report.first_failure) {
    out +=
        "<section><h2>Suspected in the file</h2><p>No operation is wrong, but the text is much more likely with one of "
        "these undone.</p>";
  } else {
    out += sure ? "<h3>Cause</h3>" : "<h3>No known fault gives these values; the nearest are</h3>";
  }
  return out + causes_list(report.causes, report.first_failure ? CauseOf::operation : CauseOf::file) + "</section>";
}

std::string tokens_section(const VerifyReport& report, const VerifyPageFacts& facts) {
  constexpr size_t kShown = 12;
  if (report.tokens.empty()) return {};
  std::vector<const TokenRisk*> order;
  for (const TokenRisk& token : report.tokens) order.push_back(&token);
  std::stable_sort(order.begin(), order.end(),
                   [](const TokenRisk* a, const TokenRisk* b) { return danger(*a) > danger(*b); });
  const auto n_turned = std::count_if(order.begin(), order.end(), [](const TokenRisk* t) { return t->turned(); });
  const auto n_near =
      std::count_if(order.begin(), order.end(), [](const TokenRisk* t) { return !t->turned() && danger(*t) >= 1; });
  double worst = 0;
  for (const TokenRisk& token : report.tokens) worst = std::max(worst, token.kl_divergence);
  std::string out = "<section><h2>Would it turn a token?</h2>";
  out += fmt::format(
      "<p>{} of {} choose another token than float64 does; at {} more the error reaches half the gap between the two "
      "best. "
      "KL divergence is at most {}.</p>",
      n_turned, n_of(report.tokens.size(), "position"), n_near, figure(worst));
  const size_t n = std::min(kShown, order.size());
  out += token_table(order, 0, n, facts);
  if (n < order.size())
    out += fmt::format("<details><summary>{} more</summary>{}</details>", n_of(order.size() - n, "position"),
                       token_table(order, n, order.size(), facts));
  return out + token_chart(report.tokens) + "</section>";
}

std::string against_section(const VerifyReport& report, const VerifyPageFacts& facts) {
  if (report.against.empty()) return {};
  std::string out = "<section><h2>Against others</h2><div class=\"scroll\"><table>";
  out += table_head({{"source", false},
                     {"logits from float64", true},
                     {"ops outside", true},
                     {"worst error / bound", true},
                     {"first wrong operation", false},
                     {"", false}});
  out += "<tbody>";
  for (const SourceFigures& source : report.against) {
    const auto n_wrong = std::count_if(source.ops.begin(), source.ops.end(), is_wrong);
    double worst = 0;
    for (const OpFigures& op : source.ops) worst = std::max(worst, tightness(op));
    out += fmt::format("<tr{}><td>{}</td>", n_wrong > 0 ? " class=\"bad\"" : "", escaped(source.name, 300));
    out += number(figure(source.logits_error)) + number(fmt::format("{} of {}", n_wrong, source.ops.size())) +
           number(factor(worst));
    out += fmt::format("<td>{}</td>",
                       source.first_failure ? place_line(*source.first_failure, facts) : span("pass", "none"));
    out += fmt::format("<td>{}</td></tr>", source.outlier ? "<span class=\"badge fail\">outlier</span>" : "");
  }
  out += "</tbody></table></div>" + sources_chart(report.against);
  for (const SourceFigures& source : report.against) out += source_block(source, facts);
  return out + "</section>";
}

std::string ops_section(const VerifyReport& report) {
  if (report.ops.empty()) return {};
  std::string out = fmt::format(
      "<section><h2>Every operation</h2><details><summary>{}, in the order of the plan</summary><div "
      "class=\"scroll\"><table>",
      n_of(report.ops.size(), "operation"));
  out += table_head({{"op", false},
                     {"kind", false},
                     {"values", true},
                     {"outside", true},
                     {"not finite", true},
                     {"worst error / bound", true},
                     {"local error", true},
                     {"bound", true},
                     {"travelled", true},
                     {"rms", true},
                     {"largest", true}});
  out += "<tbody>";
  for (const OpFigures& op : report.ops) out += op_row(op);
  return out + "</tbody></table></div></details></section>";
}

}  // namespace assay::verify
