// A VerifyReport as one HTML page that loads nothing and runs nothing: style and pictures are in it, and its policy forbids the rest.
#include <fmt/format.h>

#include <algorithm>

#include "assay/verify.h"
#include "report/html.h"
#include "report/html_charts.h"
#include "report/html_sections.h"
#include "report/html_style.h"

namespace assay {

std::string VerifyReport::to_html() const {
  using namespace verify;
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n";
  out += fmt::format("<title>assay verify: {}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n", escaped(model_name, 200), kStyle);
  // What is wrong stands first, be it ours or another source's.
  const bool other_failed = !first_failure && std::any_of(against.begin(), against.end(), [](const SourceFigures& x) { return x.first_failure.has_value(); });
  out += banner_section(*this) + "\n" + facts_section(*this) + "\n" + failure_section(*this) + "\n";
  if (other_failed) out += against_section(*this) + "\n";
  out += chain_section(*this) + "\n";
  if (!ops.empty()) {
    out += "<section><h2>Error of every operation against its bound</h2>" + error_chart(ops) + "</section>\n";
    out += "<section><h2>How near each operation is to its bound</h2>" + heat_map(ops, first_failure ? first_failure->op : std::string()) + "</section>\n";
  }
  out += tokens_section(*this) + "\n";
  if (!other_failed) out += against_section(*this) + "\n";
  if (!attention.empty()) out += "<section><h2>Attention</h2>" + attention_maps(attention) + "</section>\n";
  out += ops_section(*this);
  out += fmt::format("\n<footer>assay {}. Each operation is computed once more in float64 from the inputs it had; an error is called wrong only "
                     "where it is larger than the rounding of a right implementation can be.</footer>\n</main>\n</body>\n</html>\n",
                     escaped(assay_version, 60));
  return out;
}

}  // namespace assay
