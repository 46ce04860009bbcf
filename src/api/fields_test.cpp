// The table: every row is reached, refused or applied; unknown members are named with their paths.
#include "api/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "api/api.h"
#include "api/error.h"
#include "api/json_reader.h"

namespace assay::api {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(std::string_view text, Where where = kChat) {
  std::vector<std::string> ignored;
  try {
    json::value body = read_json(text);
    check_fields(body.get_object(), where, false, ignored);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    return error.param + ": " + error.what();
  }
  return "no error";
}

std::string chat(const std::string& rest) {
  return R"({"messages": [{"role": "user", "content": "Hi"}])" + (rest.empty() ? "" : ", " + rest) + "}";
}

Draft draft(const std::string& text, Where where = kChat) {
  std::vector<std::string> ignored;
  json::value body = read_json(text);
  check_fields(body.get_object(), where, false, ignored);
  return read_draft(body.get_object(), where, {});
}

TEST(Fields, UnknownOnesAreNamedWithTheirPath) {
  EXPECT_EQ(refusal(chat("")), "no error");
  EXPECT_THAT(refusal(chat("\"temprature\": 1")), HasSubstr("temprature: there is no field temprature"));
  EXPECT_THAT(refusal(chat("\"stream_options\": {\"include_usag\": true}")),
              HasSubstr("stream_options.include_usag: there is no field"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]})"),
              HasSubstr("messages[0].content[0].x: there is no field"));
  EXPECT_THAT(refusal(R"({"prompt": "a", "messages": []})", kCompletions), HasSubstr("messages: there is no field"));
  EXPECT_THAT(refusal(chat("\"chat_parser\": {\"a\": 1}")), HasSubstr("there is no field chat_parser"));  // B62
  EXPECT_THAT(refusal(chat("\"n_discard\": -1")), HasSubstr("there is no field n_discard"));              // B63
}

TEST(Fields, MissingAndWrongOnesSayWhatIsNeeded) {
  EXPECT_THAT(refusal("{}"), HasSubstr("messages: messages is missing: needs an array"));
  EXPECT_THAT(refusal(R"({"messages": []})"), HasSubstr("has 0 items, 1 to 4096 are served"));
  EXPECT_THAT(refusal(R"({"messages": [{"content": "a"}]})"), HasSubstr("messages[0].role is missing"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "robot", "content": "a"}]})"),
              HasSubstr("needs one of system, developer, user, assistant, tool, found \"robot\""));
  EXPECT_THAT(refusal(R"({"messages": [null]})"), HasSubstr("messages[0]: needs an object, found null"));
  EXPECT_THAT(
      refusal(
          R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]}]})"),
      HasSubstr("needs one of text, found \"image_url\""));  // B80
  EXPECT_THAT(refusal(chat("\"temperature\": \"hot\"")), HasSubstr("temperature: needs a number, found \"hot\""));
  EXPECT_THAT(refusal(chat("\"temperature\": 2.5")), HasSubstr("needs a number from 0 to 2, found 2.5"));
  EXPECT_THAT(refusal(chat("\"n\": 1000000000")), HasSubstr("from 1 to 8"));  // B65
  EXPECT_THAT(refusal(chat("\"max_tokens\": 1.5")), HasSubstr("max_tokens: needs an integer"));
  EXPECT_THAT(refusal(chat("\"max_tokens\": 0")), HasSubstr("from 1 to"));
  EXPECT_THAT(refusal(chat("\"dry_allowed_length\": -5")),
              HasSubstr("dry_allowed_length: needs an integer from 1"));  // B64
  EXPECT_THAT(refusal(chat("\"seed\": 9007199254740992")), HasSubstr("seed: needs"));
  EXPECT_THAT(refusal(chat(std::string("\"stop\": \"") + std::string(257, 'a') + "\"")),
              HasSubstr("has 257 bytes, 1 to 256"));
  EXPECT_THAT(refusal(chat("\"stop\": [\"\"]")), HasSubstr("stop[0]: has 0 bytes"));
  EXPECT_THAT(refusal(chat("\"logit_bias\": {\"x\": 1}")), HasSubstr("logit_bias.x: needs a token id"));
  EXPECT_THAT(refusal(chat("\"logit_bias\": {\"5\": 101}")), HasSubstr("from -100 to 100"));
  EXPECT_THAT(refusal(R"({"prompt": [1, -1]})", kCompletions), HasSubstr("prompt[1]: needs"));
  std::string many = "\"logit_bias\": {\"0\": 1";
  for (int i = 1; i <= 1024; ++i) many += std::string(", \"") + std::to_string(i) + "\": 1";
  EXPECT_THAT(refusal(chat(many + "}")), HasSubstr("logit_bias: has 1025 members, 0 to 1024"));
  std::string stops = "\"stop\": [\"a\"";
  for (int i = 0; i < 10'000; ++i) stops += ", \"a\"";
  EXPECT_THAT(refusal(chat(stops + "]")), HasSubstr("stop: has 10001 items"));
}

TEST(Fields, WhatIsNotServedIsRefusedUnlessItAsksForNothing) {
  for (const Field& f : fields()) {
    if (f.refused.empty() || (f.where & kChat) == 0 || f.path.find('.') != std::string_view::npos) continue;
    const std::string name(f.path);
    EXPECT_EQ(refusal(chat("\"" + name + "\": null")), "no error");
    EXPECT_THAT(refusal(chat("\"" + name + "\": \"certainly not neutral\"")),
                HasSubstr(name + " \"certainly not neutral\" is refused: "));
    std::string_view neutral = f.neutral;
    while (!neutral.empty()) {
      const size_t end = std::min(neutral.find('|'), neutral.size());
      EXPECT_EQ(refusal(chat("\"" + name + "\": " + std::string(neutral.substr(0, end)))), "no error");
      neutral.remove_prefix(std::min(end + 1, neutral.size()));
    }
  }
}

TEST(Fields, LenientTakesUnknownOnesOutAndNotesThem) {
  json::value body = read_json(chat("\"colour\": 1, \"stream_options\": {\"size\": 2}"));
  std::vector<std::string> ignored;
  check_fields(body.get_object(), kChat, true, ignored);
  EXPECT_THAT(ignored, ElementsAre("colour", "stream_options.size"));
  EXPECT_FALSE(body.get_object().contains("colour"));
}

TEST(Fields, ValuesReachTheOptions) {
  const Draft d = draft(chat(
      R"("temperature": 0.7, "top_p": 1, "top_k": 5, "min_p": 0.1, "typical_p": 0.9, "presence_penalty": -1, "frequency_penalty": 0.5,
      "repeat_penalty": 1.1, "repeat_last_n": -1, "seed": 7, "n": 3, "max_completion_tokens": 9.0, "stop": ["a", "b"], "stream": true,
      "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 4, "logit_bias": {"5": -100, "6": 2.5}, "ignore_eos": true,
      "cache_salt": "s", "user": "u", "model": "m", "dry_multiplier": 0.8, "dry_sequence_breakers": ["x"], "xtc_probability": 0.5)"));
  const SamplerOptions& s = d.generate.sampling;
  EXPECT_EQ(s.temperature, 0.7);
  EXPECT_EQ(s.top_p, 1);
  EXPECT_EQ(s.top_k, 5);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.typical_p, 0.9);
  EXPECT_EQ(s.presence_penalty, -1);
  EXPECT_EQ(s.frequency_penalty, 0.5);
  EXPECT_EQ(s.repeat_penalty, 1.1);
  EXPECT_EQ(s.penalty_last_n, -1);
  EXPECT_EQ(s.dry_multiplier, 0.8);
  EXPECT_THAT(s.dry_sequence_breakers, ElementsAre("x"));
  EXPECT_EQ(s.xtc_probability, 0.5);
  EXPECT_EQ(d.seed, 7u);
  EXPECT_EQ(d.n, 3);
  EXPECT_EQ(d.max_tokens, 9);
  EXPECT_THAT(d.generate.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(d.stream && d.include_usage && d.logprobs && d.generate.ignore_eos);
  EXPECT_EQ(d.n_top_logprobs, 4);
  ASSERT_EQ(s.logit_bias.size(), 2u);
  EXPECT_TRUE(std::isinf(s.logit_bias[0].bias));
  EXPECT_EQ(s.logit_bias[1].bias, 2.5f);
  EXPECT_EQ(d.cache_salt + d.user + d.model, "sum");
  EXPECT_EQ(draft(R"({"prompt": "a", "logprobs": 2})", kCompletions).n_top_logprobs, 2);
}

TEST(Fields, TheDocumentHasEveryRow) {
  const json::value document = json::parse(openapi_json("1", {}, {}));
  EXPECT_EQ(document.at("openapi"), "3.1.0");
  for (const auto& [where, path] : {std::pair(kChat, "/v1/chat/completions"),
                                    {kCompletions, "/v1/completions"},
                                    {kTokenize, "/tokenize"},
                                    {kDetokenize, "/detokenize"},
                                    {kTemplate, "/apply-template"}}) {
    const json::object& schema = document.at("paths")
                                     .at(path)
                                     .at("post")
                                     .at("requestBody")
                                     .at("content")
                                     .at("application/json")
                                     .at("schema")
                                     .as_object();
    std::set<std::string> expected, found;
    for (const Field& f : fields()) {
      if ((f.where & where) != 0 && f.path.find_first_of(".[") == std::string_view::npos)
        expected.insert(std::string(f.path));
    }
    for (const auto& member : schema.at("properties").as_object()) found.insert(std::string(member.key()));
    EXPECT_EQ(found, expected);
    EXPECT_EQ(schema.at("additionalProperties"), false);
  }
  const json::value& chat_schema = document.at("paths")
                                       .at("/v1/chat/completions")
                                       .at("post")
                                       .at("requestBody")
                                       .at("content")
                                       .at("application/json")
                                       .at("schema");
  EXPECT_EQ(chat_schema.at("required").as_array().front(), "messages");
  EXPECT_EQ(chat_schema.at("properties").at("temperature").at("anyOf").at(0).at("maximum"), 2.0);
}

}  // namespace
}  // namespace assay::api
