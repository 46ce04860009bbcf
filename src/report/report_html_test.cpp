// The HTML report: one well-formed page, nothing loaded, nothing run, hostile names harmless.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "assay/verify.h"
#include "assay/verify_page.h"
#include "report/html.h"
#include "report/html_charts.h"
#include "support/sample_report.h"

namespace assay {
namespace {

using test::sample_report;
using ::testing::HasSubstr;
using ::testing::Not;

// Finds the first thing that is wrong with the page's tags: names that do not close, attributes without quotes; ""
// where all is well.
class TagChecker {
 public:
  std::string check(std::string_view page) {
    for (size_t at = page.find('<'); at != std::string_view::npos; at = page.find('<', at)) {
      const size_t end = end_of_tag(page, at);
      if (end == std::string_view::npos) return "a tag does not end: " + std::string(page.substr(at, 80));
      const std::string_view tag = page.substr(at + 1, end - at - 1);
      if (const std::string problem = take(tag); !problem.empty()) return problem;
      at = end + 1;
      if (tag == "style") at = page.find("</style>", at);
    }
    return open_.empty() ? "" : "never closed: " + open_.back();
  }

 private:
  static size_t end_of_tag(std::string_view page, size_t at) {
    char quote = 0;
    for (; at < page.size(); ++at) {
      if (quote != 0) {
        if (page[at] == quote) quote = 0;
      } else if (page[at] == '"') {
        quote = page[at];
      } else if (page[at] == '>') {
        return at;
      }
    }
    return std::string_view::npos;
  }
  std::string take(std::string_view tag) {
    if (tag == "!DOCTYPE html") return {};
    const bool closes = tag.starts_with('/');
    const std::string name(tag.substr(closes ? 1 : 0, tag.find_first_of(" />", 1) - (closes ? 1 : 0)));
    if (name.empty() || !std::all_of(name.begin(), name.end(),
                                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); })) {
      return "no name of a tag: " + std::string(tag.substr(0, 80));
    }
    if (closes) {
      if (open_.empty() || open_.back() != name)
        return "</" + name + "> closes " + (open_.empty() ? "nothing" : open_.back());
      open_.pop_back();
      return {};
    }
    for (size_t at = tag.find('='); at != std::string_view::npos; at = tag.find('=', at)) {
      if (at + 1 >= tag.size() || tag[at + 1] != '"')
        return "a value without quotes: " + std::string(tag.substr(0, 80));
      at = tag.find('"', at + 2);
    }
    const bool is_void = name == "meta" || name == "img";
    if (!is_void && !tag.ends_with('/')) open_.push_back(name);
    return {};
  }
  std::vector<std::string> open_;
};

void expect_sound(const std::string& page) {
  EXPECT_EQ(TagChecker().check(page), "");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>\n"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* forbidden :
       {"<script", "http:", "https:", "javascript:", "@import", "url(", "<link", "<iframe", "nan\"", "inf\"", "-nan"}) {
    EXPECT_THAT(page, Not(HasSubstr(forbidden)));
  }
}

TEST(TagChecker, SeesWhatIsWrong) {
  EXPECT_EQ(TagChecker().check("<p>a<b x=\"1>2\">c</b><img src=\"\"><path d=\"\"/></p>"), "");
  EXPECT_NE(TagChecker().check("<p><b></p></b>"), "");
  EXPECT_NE(TagChecker().check("<p>"), "");
  EXPECT_NE(TagChecker().check("<p x=1></p>"), "");
  EXPECT_NE(TagChecker().check("a < b"), "");
}

TEST(Html, EscapesWhatAFileMayHold) {
  using verify::escaped;
  EXPECT_EQ(escaped("<b a=\"1\" c='2'>&amp;"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;");
  EXPECT_EQ(escaped("w\xC3\xB6rt\n\t\xF0\x9F\x98\x80"), "w\xC3\xB6rt\n\t\xF0\x9F\x98\x80");
  EXPECT_EQ(escaped(std::string_view("a\0\x1b\x7f", 4)), "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(escaped("\xff<\xC3"), "\xEF\xBF\xBD&lt;\xEF\xBF\xBD");
  EXPECT_EQ(escaped("\xEF\xBF\xBE"), "\xEF\xBF\xBD");  // U+FFFE is no character
  EXPECT_EQ(escaped(std::string(100, 'x'), 10), "xxxxxxxxxx… (100 bytes in all)");
  EXPECT_EQ(escaped("xxxxxxxxx\xC3\xB6", 10), "xxxxxxxxx… (11 bytes in all)");
}

TEST(ReportHtml, AHealthyRunPasses) {
  const std::string page = sample_report({.failing = false}).to_html();
  expect_sound(page);
  EXPECT_THAT(page, HasSubstr("class=\"verdict warn\""));
  EXPECT_THAT(page, HasSubstr("Nothing is wrong, something is odd"));
  EXPECT_THAT(page, Not(HasSubstr("The first wrong operation")));
  EXPECT_LT(page.size(), 1u << 20);
}

TEST(ReportText, TokensHaveTheirTextsWhereTheseAreKnown) {
  const VerifyReport report = sample_report();
  const std::string text =
      verify_outcome(report, [](TokenId id) { return id == 1043 ? std::string("\" hills\"") : std::string(); });
  EXPECT_THAT(text, HasSubstr("(position 3, token 1043 \" hills\"), head 5, element 14: found "));
  EXPECT_THAT(report.outcome_text(), HasSubstr("(position 3, token 1043), head 5"));
}

TEST(ReportHtml, AFailureIsNamedWithPlaceValuesAndCause) {
  const std::string page = sample_report().to_html();
  expect_sound(page);
  EXPECT_THAT(page, HasSubstr("class=\"verdict fail\""));
  EXPECT_THAT(page, HasSubstr("The first wrong operation is <code>blk.12.attn_q_rope</code>"));
  EXPECT_THAT(page, HasSubstr("layer 12, row 3 (position 3, token 1043), head 5, element 14"));
  EXPECT_THAT(page, HasSubstr("-1.28125"));
  EXPECT_THAT(page, HasSubstr("4.2e+05"));  // 1.71875 / 4.1e-6
  EXPECT_THAT(page, HasSubstr("RoPE rotates pairs (i, i + d/2) where the file&#39;s layout has (2i, 2i + 1)"));
  EXPECT_THAT(page, HasSubstr("gives the values found"));
  EXPECT_THAT(page, HasSubstr("C21"));
  EXPECT_THAT(page, HasSubstr(">outlier<"));
  EXPECT_THAT(page, HasSubstr("3 of 24 positions choose another token"));
  EXPECT_THAT(page, HasSubstr("data:image/png;base64,iVBORw0KGgo"));
}

TEST(ReportHtml, AFailureOfAnotherSourceIsNamed) {
  VerifyReport report = sample_report({.n_layers = 2, .failing = false});
  report.stages.back().verdict = Verdict::fail;
  report.against[1].first_failure =
      Place{.op = "blk.1.attention", .layer = 1, .found = 2, .expected = 1, .bound = 0.125};
  report.against[1].causes = {{"attention_heads", "query head h meets key head h % 3", "C49", true, 0}};
  const std::string page = report.to_html();
  expect_sound(page);
  EXPECT_THAT(page, HasSubstr("<h1>The first wrong operation of llama.cpp 0.5.0 is <code>blk.1.attention</code></h1>"));
  EXPECT_THAT(page, HasSubstr("<strong>Cause:</strong> query head h meets key head h % 3"));
  EXPECT_THAT(page, HasSubstr("<dt>times outside</dt><dd>8</dd>"));
}

TEST(ReportHtml, ASuspectedFileIsNoWrongOperation) {
  VerifyReport report = sample_report({.n_layers = 2, .failing = false});
  report.stages.push_back({"text", "Text", Verdict::fail, "8.2 nats each", {}, 1});
  report.causes = {{"file_rows_permuted", "suspected of the file: the rows of keys", "C19", false, 0.39}};
  const std::string page = report.to_html();
  expect_sound(page);
  EXPECT_THAT(page, HasSubstr("<h1>The operations are right, the file is suspected</h1>"));
  EXPECT_THAT(page, HasSubstr("<p>suspected of the file: the rows of keys</p></div></header>"));
  EXPECT_THAT(page, Not(HasSubstr("of the error</span>")));
  report.stages[0].verdict = Verdict::fail;
  EXPECT_THAT(report.to_html(), HasSubstr("<h1>File failed</h1>"));
}

TEST(ReportHtml, AnEmptyReportIsAPage) { expect_sound(VerifyReport().to_html()); }

TEST(ReportHtml, HostileNamesStayText) {
  const std::string evil = "</title></style><script>alert(1)</script>\"'><img src=x onerror=\"1\">\xff\x01";
  VerifyReport report = sample_report({.n_layers = 2});
  report.model_path = report.model_name = report.architecture = report.weights_type = report.subject =
      report.assay_version = evil;
  for (VerifyStage& stage : report.stages) stage.title = stage.summary = evil, stage.details.assign(200, evil);
  for (OpFigures& op : report.ops) op.op = evil + op.op, op.kind = evil;
  report.first_failure->op = evil;
  for (Cause& cause : report.causes) cause.id = cause.text = cause.faults = evil;
  for (SourceFigures& source : report.against) source.name = evil, source.causes = report.causes;
  const std::string page = report.to_html();
  EXPECT_EQ(TagChecker().check(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img src=x")));
  EXPECT_THAT(page, Not(HasSubstr("\xff")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
}

TEST(ReportHtml, NumbersThatAreNoneAreShownAsSuch) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  VerifyReport report = sample_report({.n_layers = 2});
  for (const double bad : {nan, infinity, -infinity, 0.0, -1.0, 1e300, 5e-324}) {
    for (OpFigures& op : report.ops) {
      op.worst_ratio = op.local_error = op.bound = op.cumulative_error = op.rms = op.largest = bad;
      op.n_non_finite = 3;
    }
    for (TokenRisk& token : report.tokens) token.gap = token.error = token.kl_divergence = bad;
    report.first_failure->found = report.first_failure->bound = bad;
    report.seconds = report.median_slack = report.stages[0].seconds = bad;
    for (SourceFigures& source : report.against) source.ops = report.ops, source.logits_error = bad;
    report.attention[0].shares.assign(report.attention[0].shares.size(), static_cast<float>(bad));
    expect_sound(report.to_html());
  }
  EXPECT_TRUE(verify::is_wrong({.op = "x", .kind = "y", .worst_ratio = nan}));
  EXPECT_FALSE(verify::is_wrong({.op = "x", .kind = "y", .worst_ratio = 1}));
}

TEST(ReportHtml, AttentionOfTheWrongSizeIsRefusedInWords) {
  VerifyReport report;
  report.attention.push_back({.layer = 0, .n_heads = 2, .n_positions = 3, .shares = std::vector<float>(17)});
  report.attention.push_back({.layer = 1, .n_heads = int64_t{1} << 40, .n_positions = int64_t{1} << 40, .shares = {}});
  report.attention.push_back({.layer = 2, .n_heads = 0, .n_positions = 0, .shares = {}});
  const std::string page = report.to_html();
  expect_sound(page);
  EXPECT_THAT(page, HasSubstr("No picture: 2 heads of 3 positions, 17 shares"));
  EXPECT_EQ(page.find("<img alt"), std::string::npos);
}

}  // namespace
}  // namespace assay
