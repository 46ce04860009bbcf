// Lines of batch files: what they ask for, and what is wrong with them.
#include "batch/line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::batch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Line parse(std::string_view text) {
  GenerateOptions defaults;
  defaults.n_predict = 77;
  defaults.sampling.seed = 5;
  return parse_line(text, 3, defaults);
}

TEST(BatchLine, SaysWhatItAsksFor) {
  const Line line = parse(
      R"({"id": "a\"b", "prompt": "Hi", "max_tokens": 9, "temperature": 0.25, "top_k": 3, "top_p": 0.5, "min_p": 0.1,
      "repeat_penalty": 1.5, "frequency_penalty": -0.5, "presence_penalty": 2, "seed": 18446744073709551615, "stop": ["x", "y"],
      "logprobs": 4, "ignore_eos": true, "logit_bias": {"7": -2.5}})");
  EXPECT_EQ(line.problem, "");
  EXPECT_EQ(line.id_json, R"("a\"b")");
  EXPECT_FALSE(line.is_openai);
  EXPECT_EQ(line.prompt, "Hi");
  EXPECT_EQ(line.options.n_predict, 9);
  EXPECT_EQ(line.options.n_top_logprobs, 4);
  EXPECT_TRUE(line.options.ignore_eos);
  EXPECT_THAT(line.options.stop, ElementsAre("x", "y"));
  const SamplerOptions& s = line.options.sampling;
  EXPECT_EQ(s.temperature, 0.25);
  EXPECT_EQ(s.top_k, 3);
  EXPECT_EQ(s.top_p, 0.5);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.repeat_penalty, 1.5);
  EXPECT_EQ(s.frequency_penalty, -0.5);
  EXPECT_EQ(s.presence_penalty, 2);
  EXPECT_EQ(s.seed, 18446744073709551615u);
  ASSERT_EQ(s.logit_bias.size(), 1u);
  EXPECT_EQ(s.logit_bias[0].token, 7);
  EXPECT_EQ(s.logit_bias[0].bias, -2.5f);
}

TEST(BatchLine, WhatItDoesNotSayIsAsTheFlagsSay) {
  const Line line = parse(R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": null})");
  EXPECT_EQ(line.problem, "");
  EXPECT_EQ(line.id_json, "3");  // its number
  EXPECT_EQ(line.key(), "id 3");
  EXPECT_EQ(line.options.n_predict, 77);
  EXPECT_EQ(line.options.sampling.seed, 5u);
  EXPECT_EQ(line.options.n_top_logprobs, -1);
  EXPECT_EQ(parse(R"({"prompt": "x", "stop": "end"})").options.stop, std::vector<std::string>{"end"});
  EXPECT_EQ(parse(R"({"prompt": "x", "logprobs": true, "top_logprobs": 2})").options.n_top_logprobs, 2);
  EXPECT_EQ(parse(R"({"prompt": "x", "logprobs": true})").options.n_top_logprobs, 0);
  EXPECT_EQ(parse(R"({"prompt": "x", "logprobs": false})").options.n_top_logprobs, -1);
}

TEST(BatchLine, TakesOpenAisForm) {
  const Line line =
      parse(R"({"custom_id": "r-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "any",
      "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
      "max_completion_tokens": 5, "n": 1, "stream": false, "user": "me", "metadata": {}, "response_format": {"type": "text"}}})");
  EXPECT_EQ(line.problem, "");
  EXPECT_TRUE(line.is_openai);
  EXPECT_EQ(line.key(), "custom_id \"r-1\"");
  ASSERT_EQ(line.messages.size(), 2u);
  EXPECT_EQ(line.messages[0].role, "system");
  EXPECT_EQ(line.messages[1].content, "ab");
  EXPECT_EQ(line.options.n_predict, 5);
}

TEST(BatchLine, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "it is empty"},
      {"{\"prompt\": ", "no JSON"},
      {"\xEF\xBB\xBF{\"prompt\": \"x\"}", "it begins with a byte order mark"},
      {R"({"prompt": "x", "max_tokens": 9, "max_tokens": 1})", "the name \"max_tokens\" stands twice in one object"},
      {R"({"messages": [{"role": "user", "role": "system", "content": "x"}]})", "the name \"role\" stands twice"},
      {R"({"prompt": "x", "temperature": 1e999})", "1e999 is beyond what a double holds"},
      {R"({"prompt": "x", "seed": 18446744073709551616})", "an integer of more than 64 bits"},
      {R"({"prompt": "\ud800"})", "no JSON"},
      {"[1]", "needs an object, found [1]"},
      {"{\"prompt\": \"\xff\"}", "not UTF-8"},
      {"{}", "needs one of prompt and messages"},
      {R"({"prompt": "x", "messages": [{"role": "user", "content": "x"}]})", "needs one of prompt and messages"},
      {R"({"prompt": 5})", "prompt: needs a string, found 5"},
      {R"({"prompt": "x", "temprature": 1})", "\"temprature\": there is no such field"},
      {R"({"prompt": "x", "temperature": "hot"})", "temperature: needs a number, found \"hot\""},
      {R"({"prompt": "x", "temperature": 1e9})", "temperature is"},
      {R"({"prompt": "x", "max_tokens": -1})", "max_tokens: needs a whole number of at least 0"},
      {R"({"prompt": "x", "max_tokens": 1.5})", "max_tokens"},
      {R"({"prompt": "x", "max_tokens": 1e300})", "max_tokens"},
      {R"({"prompt": "x", "seed": -1})", "seed: needs a whole number from 0"},
      {R"({"prompt": "x", "logprobs": 21})", "logprobs: needs 0 to 20"},
      {R"({"prompt": "x", "top_logprobs": 2})", "top_logprobs: needs \"logprobs\": true"},
      {R"({"prompt": "x", "stop": [1]})", "stop: needs a string"},
      {R"({"prompt": "x", "logit_bias": {"a": 1}})", "logit_bias: needs token ids as keys"},
      {R"({"prompt": "x", "n": 2})", "n: needs 1, found 2"},
      {R"({"prompt": "x", "stream": true})", "stream: needs false"},
      {R"({"prompt": "x", "response_format": {"type": "json_object"}})", "response_format"},
      {R"({"id": 1.5, "prompt": "x"})", "id: needs a string or a whole number"},
      {R"({"messages": []})", "messages: needs a list"},
      {R"({"messages": [{"role": "tool", "content": "x"}]})", "messages[0].role: needs system, user or assistant"},
      {R"({"messages": [{"role": "user"}]})", "messages[0]: needs a content"},
      {R"({"messages": [{"role": "user", "content": "x", "name": "y"}]})", "messages[0]: needs role and content alone"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content: needs a string, or parts"},
      {R"({"body": {}})", "custom_id: needs one"},
      {R"({"custom_id": 5, "body": {}})", "custom_id: needs a string"},
      {R"({"custom_id": "a"})", "body: needs one"},
      {R"({"custom_id": "a", "url": "/v1/embeddings", "body": {}})", "url: needs \"/v1/chat/completions\""},
      {R"({"custom_id": "a", "extra": 1, "body": {"messages": [{"role": "user", "content": "x"}]}})",
       "\"extra\": beside custom_id"},
      {R"({"custom_id": "a", "body": {"prompt": "x"}})", "prompt: a chat completion has messages"},
  };
  for (const auto& [text, problem] : cases) {
    const Line line = parse(text);
    EXPECT_THAT(line.problem, HasSubstr(problem)) << text;
    EXPECT_THAT(line.problem, StartsWith("line 3: ")) << text;
  }
  EXPECT_EQ(parse(R"({"id": "a", "prompt": 5})").id_json, "\"a\"");  // the error has the id
  EXPECT_LT(parse("{\"prompt\": \"x\", \"temperature\": \"" + std::string(1000, 'h') + "\"}").problem.size(), 200u);
  EXPECT_THAT(parse(std::string(100000, '[')).problem, HasSubstr("nested deeper than 64"));
}

}  // namespace
}  // namespace assay::batch
