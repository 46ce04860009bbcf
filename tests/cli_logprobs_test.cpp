// --logprobs and logits --all from outside, on a tiny model with a vocabulary of bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

#include "programs/program.h"
#include "support/shared_data.h"

namespace assay {
namespace {

namespace json = boost::json;
using test::ProgramResult;
using testing::HasSubstr;

class CliLogprobs : public ::testing::Test {
 protected:
  ProgramResult assay(std::vector<std::string> arguments) { return test::run_program(ASSAY_PROGRAM, arguments); }
  ProgramResult run(std::vector<std::string> more) {
    more.insert(more.begin(),
                {"run", model_, "-p", "The sea", "-n", "4", "--seed", "3", "--no-chat-template", "--ignore-eos"});
    return assay(more);
  }
  const std::string model_ = test::shared("goldens/tiny/llama.gguf").string();
};

TEST_F(CliLogprobs, JsonHasOpenAisShape) {
  ASSAY_REQUIRE_FILE(model_);
  const ProgramResult r = run({"--logprobs", "5", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json::value v = json::parse(r.out);
  const json::array& content = v.at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(content[i].at("id"), v.at("ids").at(i));
    EXPECT_TRUE(content[i].at("token").is_string());
    EXPECT_TRUE(content[i].at("bytes").is_array());
    EXPECT_LE(content[i].at("logprob").to_number<double>(), 0);
    EXPECT_EQ(content[i].at("top_logprobs").as_array().size(), 5u);
  }
  const json::value plain = json::parse(run({"--json"}).out);
  EXPECT_EQ(plain.at("ids"), v.at("ids"));
  EXPECT_FALSE(plain.as_object().contains("logprobs"));
  // The first place is what `logits` says of the prompt.
  const json::value logits = json::parse(assay({"logits", model_, "-p", "The sea", "--top", "5", "--json"}).out);
  for (size_t i = 0; i < 5; ++i) {
    const json::value& best = content[0].at("top_logprobs").at(i);
    EXPECT_EQ(best.at("id"), logits.at("top").at(i).at(0));
    EXPECT_NEAR(best.at("logprob").to_number<double>(),
                logits.at("top").at(i).at(1).to_number<double>() - logits.at("logsumexp").to_number<double>(), 1e-9);
  }
}

TEST_F(CliLogprobs, ATableGoesToStandardError) {
  ASSAY_REQUIRE_FILE(model_);
  const ProgramResult r = run({"--logprobs", "2"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.out, run({}).out);
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 5) << r.err;
  EXPECT_THAT(r.err, HasSubstr("logprob"));
  EXPECT_THAT(r.err, HasSubstr("%  \""));
  const ProgramResult wrong = run({"--logprobs", "21"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--logprobs 21: needs 0 to 20"));
}

TEST_F(CliLogprobs, LogitsAllHasEveryTokenOfTheText) {
  ASSAY_REQUIRE_FILE(model_);
  const std::vector<std::string> call = {"logits", model_, "-p", "The sea is vast", "--all", "--top", "2"};
  std::vector<std::string> as_json = call;
  as_json.push_back("--json");
  const json::value v = json::parse(assay(as_json).out);
  const json::array& content = v.at("logprobs").at("content").as_array();
  const size_t n = v.at("ids").as_array().size();
  ASSERT_EQ(content.size(), n);
  EXPECT_TRUE(content[0].at("logprob").is_null());
  double sum = 0;
  for (size_t i = 1; i < n; ++i) sum -= content[i].at("logprob").to_number<double>();
  EXPECT_NEAR(v.at("mean_nll").to_number<double>(), sum / static_cast<double>(n - 1), 1e-12);
  const ProgramResult table = assay(call);
  EXPECT_THAT(table.out, HasSubstr("token  (likeliest)"));
  EXPECT_EQ(static_cast<size_t>(std::count(table.out.begin(), table.out.end(), '%')), 2 + n - 1);
}

}  // namespace
}  // namespace assay
