// `assay verify` and `assay inspect --lint` from outside: verdicts, forms of the report, exit
// codes, Ctrl-C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "programs/assay_program.h"
#include "support/content.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

namespace json = boost::json;
using test::assay;
using test::content;
using test::ProgramResult;
using testing::HasSubstr;
using testing::Not;

// A small model without a vocabulary, which is a fault that verify finds.
class CliVerifyTiny : public ::testing::Test {
 protected:
  CliVerifyTiny() { test::TinyLlamaWriter({}).file().write(path_); }
  test::TempFolder folder_;
  std::string path_ = (folder_ / "tiny.gguf").string();
};

TEST_F(CliVerifyTiny, AFailedStageEndsWithFive) {
  const ProgramResult r = assay({"verify", path_, "--quick", "-t", "1"});
  EXPECT_EQ(r.exit_code, 5) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_THAT(r.out, HasSubstr("ok    File"));
  EXPECT_THAT(r.out, HasSubstr("FAIL  Tokenizer       metadata 'tokenizer.ggml.model' is needed"));
  EXPECT_THAT(r.out, HasSubstr("skip  Chat template"));
  EXPECT_THAT(r.out, HasSubstr("ok    Operations"));
  EXPECT_THAT(r.out, HasSubstr("\nFAILED: 1 of 11 stages"));
  EXPECT_THAT(r.out, Not(HasSubstr("\x1b"))) << "no colour where nobody looks";
  EXPECT_THAT(assay({"verify", path_, "--quick", "-t", "1", "--color", "on"}).out,
              HasSubstr("\x1b[1;31mFAIL\x1b[0m  Tokenizer"));
}

TEST_F(CliVerifyTiny, JsonAndHtml) {
  const std::string html = (folder_ / "report.html").string();
  const ProgramResult r = assay({"verify", path_, "--quick", "-t", "1", "--json", "--html", html, "--attention", "0-1",
                                 "--against", "reference"});
  EXPECT_EQ(r.exit_code, 5) << r.err;
  const json::object report = json::parse(r.out).as_object();
  EXPECT_EQ(report.at("stages").as_array().size(), 12u);
  EXPECT_EQ(report.at("stages").at(11).at("id"), "against");
  EXPECT_EQ(report.at("stages").at(11).at("verdict"), "pass");
  EXPECT_EQ(report.at("against").as_array().size(), 2u);
  EXPECT_EQ(report.at("attention").as_array().size(), 2u);
  EXPECT_TRUE(report.at("first_failure").is_null());
  EXPECT_GT(report.at("median_slack").to_number<double>(), 1);
  EXPECT_THAT(content(html), HasSubstr("</html>"));
}

TEST_F(CliVerifyTiny, VerifiesAnOverriddenModel) {
  const std::string html = (folder_ / "report.html").string();
  const ProgramResult r = assay({"verify", path_, "--quick", "-t", "1", "--json", "--html", html, "--override-kv",
                                 "llama.rope.freq_base=float:500,no.such=bool:true"});
  EXPECT_EQ(r.exit_code, 5) << r.err;
  EXPECT_THAT(r.err, HasSubstr("--override-kv: llama.rope.freq_base is 500, the file says 10000\n"));
  const json::object report = json::parse(r.out).as_object();
  ASSERT_EQ(report.at("overrides").as_array().size(), 2u);
  EXPECT_EQ(report.at("overrides").at(0), "llama.rope.freq_base is 500, the file says 10000");
  EXPECT_THAT(report.at("overrides").at(1).as_string().c_str(), HasSubstr("no.such is true, the file has none"));
  EXPECT_THAT(content(html), HasSubstr("llama.rope.freq_base is 500"));
  EXPECT_THAT(json::serialize(report.at("stages").at(1)), HasSubstr("RoPE base 500 "));
  EXPECT_EQ(assay({"verify", path_, "--quick", "--override-kv", "x"}).exit_code, 2);
}

TEST_F(CliVerifyTiny, WrongCalls) {
  for (const char* layers : {"x", "3-", "5-2", "-1", "1,,2", "", "99999"}) {
    EXPECT_EQ(assay({"verify", path_, "--attention", layers}).exit_code, 2) << layers;
  }
  EXPECT_EQ(assay({"verify", path_, "-p", ""}).exit_code, 2);
  const ProgramResult r = assay({"verify", path_, "--against", "nothing-of-this-name"});
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_EQ(r.out, "") << "told before any work";
  EXPECT_EQ(assay({"verify", path_, "--quick", "-t", "1", "--html", "/nonexistent/folder/r.html"}).exit_code, 1);
  std::ofstream(folder_ / "bad.gguf") << "not a model at all";
  EXPECT_EQ(assay({"verify", (folder_ / "bad.gguf").string()}).exit_code, 3);
  EXPECT_EQ(assay({"verify", (folder_ / "none.gguf").string()}).exit_code, 1);
}

TEST_F(CliVerifyTiny, LintTellsALineEach) {
  const ProgramResult fine = assay({"inspect", path_, "--lint"});
  EXPECT_THAT(fine.out, HasSubstr("error: unusable: tokenizer: ")) << "its vocabulary is missing";
  EXPECT_EQ(fine.exit_code, 5);
  test::TinyLlama spec;
  spec.without = {"rope.freq_base"};
  test::TinyLlamaWriter(spec).file().set("llama.rope.freq_base", 31415.0f).write(path_);
  EXPECT_THAT(assay({"inspect", path_, "--lint"}).out, HasSubstr("warning: rope_base: the base of RoPE is 31415"));
}

TEST(CliVerify, ARealModelPasses) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  const ProgramResult r = assay({"verify", test::smollm2().string(), "--quick", "--json"});
  EXPECT_EQ(r.exit_code, 0) << r.out;
  const json::object report = json::parse(r.out).as_object();
  EXPECT_TRUE(report.at("passed").as_bool());
  for (const json::value& stage : report.at("stages").as_array())
    EXPECT_EQ(stage.at("verdict"), "pass") << stage.at("summary").as_string();
  EXPECT_EQ(assay({"inspect", test::smollm2().string(), "--lint"}).exit_code, 0);
}

TEST(CliVerify, AnInterruptEndsItSoon) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  for (const char* stage : {"File", "Dequantisation"}) {  // between stages, and while operations run
    test::ProgramOptions options;
    options.signal = SIGINT;
    options.signal_after_output = stage;
    options.time_limit = std::chrono::seconds(60);
    const ProgramResult r = assay({"verify", test::smollm2().string()}, options);
    EXPECT_EQ(r.exit_code, 130) << stage;
    EXPECT_THAT(r.out, HasSubstr("skip  Logits          cancelled")) << stage;
    EXPECT_THAT(r.out, HasSubstr("\nCancelled in ")) << stage;
  }
}

}  // namespace
}  // namespace assay
