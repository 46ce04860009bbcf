// A VerifyReport as one HTML page that loads nothing and runs nothing: style and pictures are in it, and its policy
// forbids the rest.
#include <fmt/format.h>

#include <algorithm>

#include "assay/verify.h"
#include "assay/verify_page.h"
#include "report/html.h"
#include "report/html_charts.h"
#include "report/html_sections.h"
#include "report/html_style.h"

namespace assay {

std::string VerifyReport::to_html() const { return verify_page(*this, {}); }

std::string verify_page(const VerifyReport& report, const VerifyPageFacts& facts) {
  using namespace verify;
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src "
      "data:\">\n";
  out += fmt::format("<title>assay verify: {}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
                     escaped(report.model_name, 200), kStyle);
  // What is wrong stands first, be it ours or another source's.
  const bool other_failed =
      !report.first_failure && std::any_of(report.against.begin(), report.against.end(),
                                           [](const SourceFigures& x) { return x.first_failure.has_value(); });
  out += banner_section(report) + "\n" + facts_section(report, facts) + "\n" + failure_section(report, facts) + "\n";
  if (other_failed) out += against_section(report, facts) + "\n";
  out += chain_section(report) + "\n";
  if (!report.ops.empty()) {
    out += "<section><h2>Error of every operation against its bound</h2>" + error_chart(report.ops) + "</section>\n";
    out += "<section><h2>How near each operation is to its bound</h2>" +
           heat_map(report.ops, report.first_failure ? report.first_failure->op : std::string()) + "</section>\n";
  }
  out += tokens_section(report, facts) + "\n";
  if (!other_failed) out += against_section(report, facts) + "\n";
  if (!report.attention.empty())
    out += "<section><h2>Attention</h2>" + attention_maps(report.attention) + "</section>\n";
  out += ops_section(report);
  out += fmt::format(
      "\n<footer>assay {}. Each operation is computed once more in float64 from the inputs it had; an error is called "
      "wrong only "
      "where it is larger than the rounding of a right implementation can be.</footer>\n</main>\n</body>\n</html>\n",
      escaped(report.assay_version, 60));
  return out;
}

}  // namespace assay
