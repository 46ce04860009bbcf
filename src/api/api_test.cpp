// Bodies to requests and what came of them to JSON, on a small random model.
#include "api/api.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "api/error.h"
#include "support/temp_folder.h"
#include "support/tiny_chat_model.h"

namespace assay::api {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApiTest : public ::testing::Test {
 protected:
  ApiTest() {
    test::write_tiny_chat_model(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string());
    options_.names = {"tiny"};
    options_.n_ctx = 64;
    options_.fingerprint = "f";
  }
  Api api() const { return Api(model_, options_); }
  std::string refusal(Where where, std::string_view body, int status = 400) const {
    try {
      api().read(where, body, "", 1);
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, status);
      return error.code + ": " + error.what();
    }
    return "no error";
  }

  test::TempFolder folder_;
  std::shared_ptr<const Model> model_;
  ApiOptions options_;
};

TEST_F(ApiTest, PromptsAreTextsListsAndIds) {
  const Tokenizer& t = *model_->tokenizer();
  const auto prompts = [&](std::string_view prompt) {
    std::vector<std::vector<TokenId>> list;
    for (const Request& r : api().read(kCompletions, fmt::format("{{\"prompt\": {}}}", prompt), "c", 2).requests)
      list.push_back(r.prompt);
    return list;
  };
  const std::vector<TokenId> ab = t.encode("ab", {.parse_special = true, .add_bos = {}, .add_eos = false});
  EXPECT_EQ(ab.front(), 1);  // BOS, as the file says
  EXPECT_THAT(prompts("\"ab\""), ElementsAre(ab));
  EXPECT_THAT(prompts("[\"ab\", \"b\"]"),
              ElementsAre(ab, t.encode("b", {.parse_special = true, .add_bos = {}, .add_eos = false})));
  EXPECT_THAT(prompts("[5, 6]"), ElementsAre(std::vector<TokenId>{5, 6}));
  EXPECT_THAT(prompts("[[5], [6, 7]]"), ElementsAre(std::vector<TokenId>{5}, std::vector<TokenId>{6, 7}));
  EXPECT_THAT(refusal(kCompletions, R"({"prompt": ["a", 5]})"), HasSubstr("prompt[1]: needs what prompt[0] is"));
  EXPECT_THAT(refusal(kCompletions, R"({"prompt": [99999]})"),
              HasSubstr("prompt[0]: needs a token id from 0 to"));  // B68
  EXPECT_THAT(refusal(kCompletions, R"({"prompt": [2147483648]})"), HasSubstr("prompt[0]"));
  EXPECT_THAT(refusal(kCompletions, R"({"prompt": []})"), HasSubstr("prompt: has 0 items"));
}

TEST_F(ApiTest, WhatMessagesSayStaysText) {
  const Asked asked = api().read(
      kChat,
      R"({"messages": [{"role": "developer", "content": "</s>"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b<s>"}]}]})",
      "", 1);
  const std::vector<TokenId>& ids = asked.requests.at(0).prompt;
  EXPECT_EQ(ids, chat_prompt(*model_, *model_->chat_template(), {{"system", "</s>"}, {"user", "ab<s>"}}));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 1);  // the template's own </s>
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);  // BOS
}

TEST_F(ApiTest, ChoicesDrawAsRequestsOfTheirOwn) {
  options_.seed = 5;
  const Asked asked =
      api().read(kCompletions, R"({"prompt": ["a", "b"], "n": 2, "max_tokens": 3, "logprobs": 1})", "key", 2);
  ASSERT_EQ(asked.requests.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(asked.requests[i].generate.request, i % 2);
    EXPECT_EQ(asked.requests[i].generate.sampling.seed, 5u);
    EXPECT_EQ(asked.requests[i].generate.n_predict, 3);
    EXPECT_EQ(asked.requests[i].generate.n_top_logprobs, 1);
    EXPECT_EQ(asked.requests[i].client, "key");
  }
  EXPECT_EQ(asked.requests[0].prompt, asked.requests[1].prompt);
  options_.seed.reset();
  const Asked drawn = api().read(kCompletions, R"({"prompt": "a"})", "key", 2);
  EXPECT_LT(drawn.seed, uint64_t{1} << 53);
  EXPECT_EQ(api().read(kCompletions, R"({"prompt": "a", "seed": 9})", "", 1).seed, 9u);
}

TEST_F(ApiTest, RefusesBeforeAnyWork) {
  EXPECT_THAT(refusal(kChat, R"({"model": "other", "messages": [{"role": "user", "content": "a"}]})", 404),
              HasSubstr("model_not_found: there is no model 'other'"));
  EXPECT_THAT(refusal(kCompletions, R"({"prompt": [5], "max_tokens": 65})"),
              HasSubstr("context_length_exceeded: the prompt has 1 tokens and max_tokens is 65, the context holds 64"));
  EXPECT_EQ(refusal(kCompletions, R"({"prompt": [5], "max_tokens": 64})"), "no error");
  std::string ids = "5";
  for (int i = 0; i < 64; ++i) ids += ",5";
  EXPECT_THAT(refusal(kCompletions, R"({"stream": true, "prompt": [)" + ids + "]}"),
              HasSubstr("context_length_exceeded: the prompt has 65 tokens, the context"));
  EXPECT_THAT(refusal(kChat, R"({"top_logprobs": 2, "messages": [{"role": "user", "content": "a"}]})"),
              HasSubstr("needs logprobs"));
  EXPECT_THAT(refusal(kCompletions, R"({"prompt": "a", "logit_bias": {"999999": 1}})"),
              HasSubstr("the vocabulary has ids"));
  EXPECT_THAT(refusal(kChat, "[1]"), HasSubstr("no JSON object"));
  test::write_tiny_chat_model(folder_ / "raw.gguf", false);
  model_ = Model::load((folder_ / "raw.gguf").string());
  EXPECT_THAT(refusal(kChat, R"({"messages": [{"role": "user", "content": "a"}]})"), HasSubstr("no chat template"));
}

TEST_F(ApiTest, AnswersAreJson) {
  options_.seed = 5;
  Asked asked = api().read(
      kChat, R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 1})", "", 1);
  Choice choice;
  choice.text = "say \"é\"\n";
  choice.logprobs = {{264, -0.5, {{265, -0.25}}}};
  choice.finished.reason = FinishReason::stop;
  choice.finished.n_prompt = 7;
  choice.finished.n_prompt_cached = 2;
  choice.finished.n_answer = 1;
  const json::value v = json::parse(api().answer(asked, {choice}));
  EXPECT_EQ(v.at("object"), "chat.completion");
  EXPECT_EQ(v.at("seed"), 5);
  EXPECT_EQ(v.at("system_fingerprint"), "f");
  const json::value& c = v.at("choices").at(0);
  EXPECT_EQ(c.at("message").at("content"), "say \"é\"\n");
  EXPECT_EQ(c.at("finish_reason"), "stop");
  EXPECT_EQ(c.at("logprobs").at("content").at(0).at("top_logprobs").at(0).at("logprob"), -0.25);
  EXPECT_EQ(v.at("usage").at("total_tokens"), 8);
  EXPECT_EQ(v.at("usage").at("prompt_tokens_details").at("cached_tokens"), 2);
  asked.where = kCompletions;
  const json::value legacy = json::parse(api().answer(asked, {choice}));
  EXPECT_EQ(legacy.at("object"), "text_completion");
  EXPECT_EQ(legacy.at("choices").at(0).at("logprobs").at("tokens").at(0), "a");
  EXPECT_EQ(legacy.at("choices").at(0).at("logprobs").at("top_logprobs").at(0).at("b"), -0.25);
}

TEST_F(ApiTest, TokensAndTemplates) {
  EXPECT_EQ(api().tokenize(R"({"content": "ab", "parse_special": false})"), R"({"tokens":[261]})");
  EXPECT_EQ(json::parse(api().tokenize(R"({"content": "ab", "add_special": true})")).at("tokens").at(0), 1);
  EXPECT_EQ(json::parse(api().tokenize(R"({"content": "ab", "with_pieces": true})")).at("tokens").at(0).at("id"), 261);
  EXPECT_EQ(api().detokenize(R"({"tokens": [264, 265]})"), R"({"content":"ab"})");
  EXPECT_THROW(api().detokenize(R"({"tokens": [-1]})"), ApiError);
  EXPECT_EQ(api().apply_template(R"({"messages": [{"role": "user", "content": "a"}]})"), R"({"prompt":"<user>a</s>"})");
  EXPECT_THROW(api().model("other"), ApiError);
  EXPECT_EQ(json::parse(api().models()).at("data").at(0).at("id"), "tiny");
}

TEST_F(ApiTest, EmbeddingsTakeTextsAndIds) {
  const Tokenizer& t = *model_->tokenizer();
  const auto texts = [&](std::string_view input) {
    return api().read_embeddings(fmt::format("{{\"input\": {}}}", input)).texts;
  };
  const EncodeOptions as_the_file_says{.parse_special = true, .add_bos = {}, .add_eos = {}};
  EXPECT_THAT(texts("\"ab\""), ElementsAre(t.encode("ab", as_the_file_says)));
  EXPECT_THAT(texts("[\"ab\", \"b\"]"), ElementsAre(t.encode("ab", as_the_file_says), t.encode("b", as_the_file_says)));
  EXPECT_THAT(texts("[5, 6]"), ElementsAre(std::vector<TokenId>{5, 6}));
  EXPECT_THAT(texts("[[5], [6, 7]]"), ElementsAre(std::vector<TokenId>{5}, std::vector<TokenId>{6, 7}));
  const auto refusal_of = [&](std::string_view body) -> std::string {
    try {
      api().read_embeddings(body);
    } catch (const ApiError& error) {
      return fmt::format("{} {} {}: {}", error.status, error.code, error.param, error.what());
    }
    return "no error";
  };
  EXPECT_THAT(refusal_of(R"({})"), HasSubstr("400 missing_required_parameter input"));
  EXPECT_THAT(refusal_of(R"({"input": []})"), HasSubstr("input: has 0 items"));
  EXPECT_THAT(refusal_of(R"({"input": [[5], []]})"), HasSubstr("input[1]: needs at least one token"));
  EXPECT_THAT(refusal_of(R"({"input": ["a", 5]})"), HasSubstr("input[1]: needs what input[0] is"));
  EXPECT_THAT(refusal_of(R"({"input": [99999]})"), HasSubstr("input[0]: needs a token id from 0 to"));
  EXPECT_THAT(refusal_of(R"({"input": "a", "encoding_format": "hex"})"), HasSubstr("encoding_format: needs one of"));
  EXPECT_THAT(refusal_of(R"({"input": "a", "dimensions": 3})"), HasSubstr("400 unsupported_parameter dimensions"));
  EXPECT_THAT(refusal_of(R"({"input": "a", "messages": []})"), HasSubstr("messages"));
  EXPECT_THAT(refusal_of(R"({"input": "a", "model": "other"})"), HasSubstr("404 model_not_found"));
  EXPECT_THAT(refusal_of(fmt::format(R"({{"input": [[1], [{}]]}})", fmt::join(std::vector<int>(65, 5), ","))),
              HasSubstr("400 context_length_exceeded input[1]"));
}

TEST_F(ApiTest, EmbeddingsAreNumbersOrTheirBytes) {
  const std::vector<std::vector<double>> vectors = {{1, -0.5, 0.1f}, {2, 3, 4}};
  AskedEmbeddings asked = api().read_embeddings(R"({"input": [[5, 6], [7]]})");
  const json::value plain = json::parse(api().embeddings_answer(asked, vectors));
  EXPECT_EQ(plain.at("data").at(0).at("embedding"), (json::array{1, -0.5, 0.1}));
  EXPECT_EQ(plain.at("data").at(1).at("index"), 1);
  EXPECT_EQ(plain.at("data").at(1).at("object"), "embedding");
  EXPECT_EQ(plain.at("model"), "tiny");
  EXPECT_EQ(plain.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(plain.at("usage").at("total_tokens"), 3);
  asked.draft.base64 = true;  // 1, -0.5, 0.1 as float32, the lowest byte first: 0000803f 000000bf cdcccc3d
  EXPECT_EQ(json::parse(api().embeddings_answer(asked, vectors)).at("data").at(0).at("embedding"), "AACAPwAAAL/NzMw9");
  EXPECT_THROW(api().embeddings_answer(asked, {{std::nan("")}}), ApiError);
}

}  // namespace
}  // namespace assay::api
