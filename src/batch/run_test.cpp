// Batches on a tiny model with a vocabulary of bytes: every answer as it is alone, in the order of the lines, wrong
// lines named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <sstream>

#include "assay/batch.h"
#include "assay/error.h"
#include "assay/session.h"
#include "support/shared_data.h"

namespace assay {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

constexpr const char* kTemplate = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:";

class Batch : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSAY_REQUIRE_FILE(path_);
    model_ = Model::load(path_);
    options_.defaults.n_predict = 12;
    options_.defaults.sampling.seed = 9;
    options_.chat_template = ChatTemplate::parse(kTemplate);
    options_.created_unix = 1700000000;
  }

  // The output's lines.
  std::vector<std::string> run(const std::string& input, int n_sequences, int64_t n_ubatch = 64,
                               const std::function<bool()>& cancelled = {}) {
    SchedulerOptions scheduling;
    scheduling.context.n_ctx = 128;
    scheduling.context.n_threads = 2;
    scheduling.context.n_ubatch = n_ubatch;
    scheduling.context.n_sequences = n_sequences;
    Scheduler scheduler(model_, scheduling);
    std::istringstream in(input);
    std::vector<std::string> out;
    counts_ = run_batch(
        scheduler, options_, [&](std::string& line) { return static_cast<bool>(std::getline(in, line)); },
        [&](std::string_view line) {
          EXPECT_TRUE(line.ends_with('\n'));
          out.emplace_back(line.substr(0, line.size() - 1));
        },
        cancelled);
    return out;
  }

  Generation alone(const std::vector<TokenId>& prompt, const GenerateOptions& options) {
    ContextOptions one;
    one.n_ctx = 128;
    one.n_threads = 1;
    Context context(model_, one);
    return Generator(context).run(prompt, options);
  }

  const std::string path_ = test::shared("goldens/tiny/llama.gguf").string();
  std::shared_ptr<const Model> model_;
  BatchOptions options_;
  BatchCounts counts_;
};

TEST_F(Batch, EachAnswerIsTheOneItHasAlone) {
  if (!model_) GTEST_SKIP();
  std::string input;
  for (int i = 0; i < 14; ++i) {
    json::object line = {{"id", i},
                         {"prompt", "Question " + std::string(static_cast<size_t>(i * 5 % 37), 'x')},
                         {"temperature", i % 3 * 0.9},
                         {"seed", i * 1000},
                         {"max_tokens", 3 + i * 7 % 30}};
    if (i % 4 == 1) line["logprobs"] = 2;
    if (i % 5 == 2) line["repeat_penalty"] = 1.3;
    input += json::serialize(line) + "\n";
  }
  const std::vector<std::string> first = run(input, 5);
  ASSERT_EQ(first.size(), 14u);
  EXPECT_EQ(counts_.n_lines, 14);
  EXPECT_EQ(counts_.n_failed, 0);
  int64_t n_answer = 0;
  for (int i = 0; i < 14; ++i) {
    const json::value answer = json::parse(first[static_cast<size_t>(i)]);
    ASSERT_EQ(answer.at("id"), i) << "in the order of the lines";
    GenerateOptions options = options_.defaults;
    options.sampling.temperature = i % 3 * 0.9;
    options.sampling.seed = static_cast<uint64_t>(i * 1000);
    options.n_predict = 3 + i * 7 % 30;
    if (i % 4 == 1) options.n_top_logprobs = 2;
    if (i % 5 == 2) options.sampling.repeat_penalty = 1.3;
    const std::string prompt = "u:Question " + std::string(static_cast<size_t>(i * 5 % 37), 'x') + "\na:";
    const Generation g =
        alone(model_->tokenizer()->encode(prompt, {.parse_special = true, .add_bos = {}, .add_eos = false}), options);
    EXPECT_EQ(json::value_to<std::vector<TokenId>>(answer.at("ids")), g.ids) << i;
    EXPECT_EQ(answer.at("text").as_string(), g.text);
    EXPECT_EQ(answer.at("finish_reason").as_string(), name(g.finish_reason));
    EXPECT_EQ(answer.at("usage").at("prompt_tokens"), g.n_prompt);
    EXPECT_EQ(answer.at("seed"), i * 1000);
    EXPECT_EQ(answer.as_object().contains("logprobs"), i % 4 == 1);
    if (i % 4 == 1) {
      EXPECT_EQ(json::parse(logprobs_json(model_->tokenizer().get(), g.logprobs)), answer.at("logprobs"));
    }
    n_answer += static_cast<int64_t>(g.ids.size());
  }
  EXPECT_EQ(counts_.n_answer_tokens, n_answer);
  EXPECT_EQ(run(input, 1), first);
  EXPECT_EQ(run(input, 16, 16), first);
}

TEST_F(Batch, WrongLinesAreNamedInTheirPlace) {
  if (!model_) GTEST_SKIP();
  const std::vector<std::string> out =
      run("{\"prompt\": \"a\"}\n"
          "\n"
          "{\"id\": \"b\", \"prompt\": \"b\", \"temperature\": \"hot\"}\n"
          "no json\n"
          "{\"id\": \"e\", \"prompt\": \"" +
              std::string(200, 'x') +
              "\"}\n"
              "{\"id\": \"e\", \"prompt\": \"again\"}\n"
              "{\"id\": \"g\", \"prompt\": \"g\", \"logit_bias\": {\"99999999\": 1}}\n"
              "{\"custom_id\": \"h\", \"body\": {\"messages\": []}}\n"
              "{\"id\": \"i\", \"prompt\": \"i\"}",
          3);
  ASSERT_EQ(out.size(), 8u);
  EXPECT_EQ(counts_.n_lines, 8);
  EXPECT_EQ(counts_.n_failed, 6);
  const auto error = [&](size_t i) { return std::string(json::parse(out[i]).at("error").as_string()); };
  EXPECT_EQ(json::parse(out[0]).at("id"), 1);
  EXPECT_THAT(error(1), HasSubstr("line 3: temperature: needs a number"));
  EXPECT_EQ(json::parse(out[1]).at("id"), "b");
  EXPECT_THAT(error(2), HasSubstr("line 4: it is no JSON"));
  EXPECT_EQ(json::parse(out[2]).at("id"), 4);
  EXPECT_THAT(error(3), HasSubstr("line 5: the prompt has"));
  EXPECT_THAT(error(4), HasSubstr("line 6: id: a line before has the same"));
  EXPECT_THAT(error(5), HasSubstr("line 7: logit bias for token 99999999"));
  EXPECT_THAT(json::parse(out[6]).at("error").at("message").as_string(), HasSubstr("line 8: messages"));
  EXPECT_EQ(json::parse(out[6]).at("custom_id"), "h");
  EXPECT_TRUE(json::parse(out[6]).at("response").is_null());
  EXPECT_TRUE(json::parse(out[7]).as_object().contains("text"));
}

TEST_F(Batch, OpenAisFormComesBackInOpenAisForm) {
  if (!model_) GTEST_SKIP();
  const std::string body =
      R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "logprobs": true, "top_logprobs": 1})";
  const std::vector<std::string> out =
      run("{\"custom_id\": \"q\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": " + body + "}\n" +
              "{\"id\": 2, \"prompt\": \"Hi\", \"max_tokens\": 4}\n",
          2);
  ASSERT_EQ(out.size(), 2u);
  const json::value v = json::parse(out[0]);
  EXPECT_EQ(v.at("custom_id"), "q");
  EXPECT_TRUE(v.at("error").is_null());
  EXPECT_EQ(v.at("response").at("status_code"), 200);
  const json::value& answer = v.at("response").at("body");
  EXPECT_EQ(answer.at("object"), "chat.completion");
  EXPECT_EQ(answer.at("created"), 1700000000);
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("role"), "assistant");
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content"), json::parse(out[1]).at("text"));
  EXPECT_EQ(answer.at("choices").at(0).at("logprobs").at("content").as_array().size(), 4u);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 4);
}

TEST_F(Batch, SystemMessageAndRawText) {
  if (!model_) GTEST_SKIP();
  const auto n_prompt = [&](const char* line) {
    return json::parse(run(line, 1).at(0)).at("usage").at("prompt_tokens").as_int64();
  };
  const int64_t plain = n_prompt(R"({"prompt": "abc"})");
  options_.system = "S!";
  EXPECT_EQ(n_prompt(R"({"prompt": "abc"})"), plain + 5);  // s:S!\n
  EXPECT_EQ(n_prompt(R"({"messages": [{"role": "user", "content": "abc"}]})"), plain + 5);
  EXPECT_EQ(n_prompt(R"({"messages": [{"role": "system", "content": "T"}, {"role": "user", "content": "abc"}]})"),
            plain + 4);
  options_.system.reset();
  options_.chat_template = nullptr;
  EXPECT_EQ(n_prompt(R"({"prompt": "u:abc\na:"})"), plain);
  EXPECT_THAT(run(R"({"messages": [{"role": "user", "content": "abc"}]})", 1).at(0),
              HasSubstr("messages: need a chat template"));
}

TEST_F(Batch, ReasoningIsApart) {
  if (!model_) GTEST_SKIP();
  options_.chat_template = ChatTemplate::parse(std::string(kTemplate) + "<think>\n");
  options_.reasoning = ReasoningMarks{"<think>", "</think>"};
  options_.n_reasoning_max = 4;
  options_.defaults.ignore_eos = true;
  options_.defaults.n_predict = 30;
  const json::value v = json::parse(run(R"({"prompt": "abc"})", 1).at(0));
  EXPECT_TRUE(v.as_object().contains("reasoning_content"));
  EXPECT_EQ(v.at("text").as_string().find("</think>"), std::string::npos);
  EXPECT_FALSE(v.at("text").as_string().empty());
  const std::string text = model_->tokenizer()->decode(json::value_to<std::vector<TokenId>>(v.at("ids")));
  EXPECT_THAT(text, HasSubstr("</think>"));  // after four tokens
}

TEST_F(Batch, AnInterruptKeepsWhatIsWholeAndResumeDoesTheRest) {
  if (!model_) GTEST_SKIP();
  std::string input;
  for (int i = 0; i < 9; ++i)
    input +=
        "{\"id\": \"n" + std::to_string(i) + "\", \"prompt\": \"" + std::string(static_cast<size_t>(i), 'y') + "\"}\n";
  input += "wrong\n";
  const std::vector<std::string> whole = run(input, 2);
  ASSERT_EQ(whole.size(), 10u);
  int n_polls = 0;
  const std::vector<std::string> part = run(input, 2, 64, [&] { return ++n_polls > 30; });
  EXPECT_TRUE(counts_.cancelled);
  ASSERT_LT(part.size(), 10u);
  ASSERT_GT(part.size(), 0u);
  std::string file;
  for (const std::string& line : part) file += line + "\n";
  const BatchOutput found = read_batch_output(file + "{\"id\": \"n8\", \"te");
  EXPECT_EQ(found.keys.size(), part.size());
  EXPECT_EQ(found.n_bytes_whole, static_cast<int64_t>(file.size()));
  options_.done = found.keys;
  std::vector<std::string> all = part;
  for (const std::string& line : run(input, 2)) all.push_back(line);
  EXPECT_EQ(all, whole);
  EXPECT_EQ(counts_.n_skipped, static_cast<int64_t>(part.size()));
  std::string complete;
  for (const std::string& line : whole) complete += line + "\n";
  options_.done = read_batch_output(complete).keys;
  EXPECT_EQ(read_batch_output(complete).n_failed, 1);
  EXPECT_TRUE(run(input, 2).empty());
  EXPECT_THROW(read_batch_output("{\"id\": 1}\n"), Error);
  EXPECT_THROW(read_batch_output("another file\n"), Error);
}

}  // namespace
}  // namespace assay
