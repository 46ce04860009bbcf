// Responses: items to a conversation, and what came of it as an object and as events.
#include "api/responses.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/api.h"
#include "api/json_reader.h"
#include "api/stream.h"
#include "support/temp_folder.h"
#include "support/tiny_chat_model.h"

namespace assay::api {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ResponsesTest : public ::testing::Test {
 protected:
  ResponsesTest() {
    test::write_tiny_chat_model(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string());
    options_.names = {"tiny"};
    options_.n_ctx = 1024;
    options_.fingerprint = "f";
    options_.seed = 5;
  }
  Api api() const { return Api(model_, options_); }
  std::string refusal_of(std::string_view members) const {
    try {
      api().read(kResponses, fmt::format("{{{}}}", members), "", 1);
    } catch (const ApiError& error) {
      return fmt::format("{} {} {}: {}", error.status, error.code, error.param, error.what());
    }
    return "no error";
  }
  static std::vector<Message> messages(std::string_view body) {
    std::vector<std::string> ignored;
    json::value v = read_json(body);
    check_fields(v.get_object(), kResponses, false, ignored);
    return response_messages(v.get_object());
  }

  test::TempFolder folder_;
  std::shared_ptr<const Model> model_;
  ApiOptions options_;
};

TEST_F(ResponsesTest, ItemsBecomeMessages) {
  const auto m = messages(R"({"instructions": "be brief", "input": [
      {"role": "developer", "content": "now"}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "id": "fc_1", "status": "completed"},
      {"type": "function_call", "call_id": "c2", "name": "wait", "arguments": "{\"s\": 1}"},
      {"type": "function_call_output", "call_id": "c2", "output": "done"},
      {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}]},
      {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
       "content": [{"type": "output_text", "text": "ok", "annotations": [], "logprobs": [{"token": "ok", "any": 1}]}]}]})");
  ASSERT_EQ(m.size(), 7u);
  EXPECT_EQ(m[0].role + m[0].content, "systembe brief");
  EXPECT_EQ(m[1].role + m[1].content, "systemnow");
  EXPECT_EQ(m[2].role + m[2].content, "userab");
  EXPECT_EQ(m[3].role, "assistant");
  EXPECT_EQ(m[3].reasoning_content, "hm");
  ASSERT_EQ(m[3].tool_calls.size(), 2u);
  EXPECT_EQ(m[3].tool_calls[1].arguments, "{\"s\": 1}");
  EXPECT_EQ(m[4].tool_call_id + m[4].name + m[4].content, "c2waitdone");
  EXPECT_EQ(m[5].tool_call_id + m[5].name + m[5].content, "c1lookx");
  EXPECT_EQ(m[6].role + m[6].content, "assistantok");
}

TEST_F(ResponsesTest, ATextIsWhatAUserSays) {
  const Asked response = api().read(kResponses, R"({"input": "ab", "instructions": "b"})", "c", 2);
  const Asked chat = api().read(
      kChat, R"({"messages": [{"role": "system", "content": "b"}, {"role": "user", "content": "ab"}]})", "c", 2);
  EXPECT_EQ(response.requests.at(0).prompt, chat.requests.at(0).prompt);
  EXPECT_EQ(response.requests.at(0).generate.sampling.seed, chat.requests.at(0).generate.sampling.seed);
}

TEST_F(ResponsesTest, RefusalsNameTheirField) {
  const struct {
    const char *body, *refused;
  } kCases[] = {
      {R"("store": true, "input": "a")",
       "400 unsupported_parameter store: store true is refused: answers are not stored"},
      {R"("previous_response_id": "resp_1", "input": "a")", "400 unsupported_parameter previous_response_id: "},
      {R"("conversation": "c", "input": "a")", "400 unsupported_parameter conversation: "},
      {R"("background": true, "input": "a")", "400 unsupported_parameter background: "},
      {R"("truncation": "auto", "input": "a")", "400 unsupported_parameter truncation: "},
      {R"("input": "a", "tools": [{"type": "web_search"}])",
       "400 invalid_value tools[0].type: tools[0].type: needs one of function, found \"web_search\""},
      {R"("input": "a", "include": ["reasoning.encrypted_content"])", "400 invalid_value include[0]: "},
      {R"("input": "a", "top_logprobs": 2)",
       "400 invalid_value top_logprobs: top_logprobs: needs message.output_text.logprobs"},
      {R"("input": "a", "messages": [])", "400 unknown_parameter messages: "},
      {R"("input": [{"role": "user"}])", "400 missing_required_parameter input[0].content: "},
      {R"("input": [{"role": "user", "content": "a", "call_id": "x"}])", "400 unknown_parameter input[0].call_id: "},
      {R"("input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://169.254.169.254/"}]}])",
       "400 "},
      {R"("input": [{"role": "user", "content": [{"type": "reasoning_text", "text": "a"}]}])",
       "400 invalid_value input[0].content[0].type: "},
      {R"("input": [{"type": "function_call_output", "call_id": "x", "output": "a"}])",
       "400 invalid_value input[0].call_id: "},
      {R"("input": [{"type": "item_reference", "id": "x"}])", "400 invalid_value input[0].type: "},
      {R"("input": "a", "max_output_tokens": 10000)", "400 context_length_exceeded max_output_tokens: the prompt has "},
      {R"("input": "a", "tool_choice": {"type": "function", "name": "no"}, "tools": [{"type": "function", "name": "f"}])",
       "400 invalid_value tool_choice.name: "},
      {R"("input": "a", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "not": {}}}])",
       "400 invalid_schema tools[0].parameters.not: "},
      {R"("input": "a", "tools": [{"type": "function", "name": "f g"}])", "400 invalid_value tools[0].name: "},
      {R"("input": "a", "text": {"format": {"type": "json_schema", "name": "x"}}})", "400 "},
      {R"("input": "a", "text": {"format": {"type": "json_schema", "name": "x"}})",
       "400 missing_required_parameter text.format.schema: "},
      {R"("input": "a", "text": {"format": {"type": "text", "schema": {}}})", "400 invalid_value text.format.schema: "},
      {R"("input": "a", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"uniqueItems": true, "type": "array"}}})",
       "400 invalid_schema text.format.schema: "},
      {R"("input": "a", "grammar": "root ::= other")", "400 invalid_value grammar: grammar: the grammar is refused: "},
      {R"("input": "a", "grammar": "root ::= \"x\"", "text": {"format": {"type": "json_object"}})",
       "400 invalid_value grammar: text.format and grammar exclude each other"},
      {R"("input": "a", "reasoning": {"effort": "low"})", "400 unsupported_parameter reasoning.effort: "},
      {R"("input": "a", "reasoning": {"summary": "auto"})", "400 unsupported_parameter reasoning.summary: "},
      {R"("input": [])", "400 invalid_value input: "},
  };
  for (const auto& c : kCases) EXPECT_THAT(refusal_of(c.body), StartsWith(c.refused)) << c.body;
  EXPECT_EQ(
      refusal_of(
          R"("input": "a", "store": false, "truncation": "disabled", "metadata": {}, "previous_response_id": null, "text": {"format": {"type": "text"}, "verbosity": "medium"})"),
      "no error");
  const Asked asked = api().read(kResponses, R"({"input": "a", "grammar": "root ::= \"x\""})", "", 1);
  EXPECT_TRUE(asked.requests.at(0).generate.mask != nullptr);
}

// The data of events, each with its type before it.
std::vector<json::object> events_of(const std::string& text) {
  std::vector<json::object> list;
  for (size_t at = 0; at < text.size();) {
    const size_t line = text.find('\n', at), end = text.find("\n\n", at);
    const std::string type = text.substr(at + 7, line - at - 7);
    EXPECT_EQ(text.substr(at, 7), "event: ");
    EXPECT_EQ(text.substr(line + 1, 6), "data: ");
    list.push_back(json::parse(text.substr(line + 7, end - line - 7)).as_object());
    EXPECT_EQ(list.back().at("type"), json::value(type));
    at = end + 2;
  }
  return list;
}

TEST_F(ResponsesTest, EventsAddUpToTheWholeAnswer) {
  const std::string body =
      R"({"input": "a", "max_output_tokens": 9, "include": ["message.output_text.logprobs"], "top_logprobs": 1, "timings_per_token": true, "tools": [{"type": "function", "name": "look"}]})";
  const Api a = api();
  const Asked asked = a.read(kResponses, body, "", 1);
  ChoiceReader reader(asked, 0);
  const auto writer = stream_writer(a, asked);
  std::string text = writer->begin();
  StreamWriter::Time now{};
  RequestStarted started;
  started.n_prompt = 7, started.n_prompt_cached = 2;
  writer->started(0, started, now);
  const auto token = [&](TokenId id, const std::string& piece) {
    const RequestToken t{id, piece, TokenLogprobs{id, -0.5, {{id, -0.5}}}};
    reader.token(t);
    text += writer->token(0, t, now += std::chrono::milliseconds(4));
  };
  token(264, "");
  token(264, "aa");
  token(265, "b \"é\"");
  RequestFinished finished;
  finished.reason = FinishReason::length;
  finished.text = "!";
  finished.n_prompt = 7, finished.n_prompt_cached = 2, finished.n_answer = 3;
  reader.finish(finished);
  text += writer->finish(0, finished);
  text += writer->end({});
  const json::value whole = json::parse(a.answer(asked, {reader.choice()}));
  const std::vector<json::object> events = events_of(text);
  EXPECT_EQ(events.front().at("type"), "response.created");
  EXPECT_EQ(events.back().at("type"), "response.incomplete");
  EXPECT_EQ(events.back().at("response"), whole);
  std::string told;
  size_t n_logprobs = 0;
  std::vector<int64_t> n_answered;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].at("sequence_number"), static_cast<int64_t>(i));
    if (events[i].at("type") != "response.output_text.delta") continue;
    told += events[i].at("delta").as_string();
    n_logprobs += events[i].at("logprobs").as_array().size();
    EXPECT_EQ(events[i].at("item_id"), whole.at("output").at(0).at("id"));
    n_answered.push_back(events[i].at("timings").at("predicted_n").as_int64());
    EXPECT_EQ(events[i].at("timings").at("prompt_n"), 5);
    EXPECT_EQ(events[i].at("timings").at("prompt_ms").to_number<double>(), 4);
  }
  EXPECT_EQ(n_answered, (std::vector<int64_t>{2, 3, 3}));
  EXPECT_EQ(whole.at("timings").at("predicted_n"), 3);
  EXPECT_EQ(whole.at("object"), "response");
  EXPECT_EQ(whole.at("status"), "incomplete");
  EXPECT_EQ(whole.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(whole.at("output").at(0).at("content").at(0).at("text"), json::value(told));
  EXPECT_EQ(told, "aab \"é\"!");
  EXPECT_EQ(n_logprobs, 3u);
  EXPECT_EQ(whole.at("output").at(0).at("content").at(0).at("logprobs").as_array().size(), 3u);
  EXPECT_EQ(whole.at("usage").at("input_tokens_details").at("cached_tokens"), 2);
  EXPECT_EQ(whole.at("usage").at("total_tokens"), 10);
  EXPECT_EQ(whole.at("store"), false);
  EXPECT_EQ(whole.at("seed"), 5);
  EXPECT_EQ(whole.at("max_output_tokens"), 9);
  EXPECT_EQ(whole.at("tools").at(0).at("name"), "look");
}

TEST_F(ResponsesTest, AFailureIsAnErrorEventAndAFailedResponse) {
  const Api a = api();
  const Asked asked = a.read(kResponses, R"({"input": "a"})", "", 1);
  const auto writer = stream_writer(a, asked);
  std::string text = writer->begin();
  text += writer->token(0, {264, "a", {}}, {});
  text += writer->end(ApiError(503, "too late", "", "timeout"));
  const std::vector<json::object> events = events_of(text);
  EXPECT_EQ(events.at(events.size() - 2).at("type"), "error");
  EXPECT_EQ(events.at(events.size() - 2).at("message"), "too late");
  EXPECT_EQ(events.back().at("type"), "response.failed");
  EXPECT_THAT(text, Not(HasSubstr("timings")));
  EXPECT_EQ(events.back().at("response").at("error").at("code"), "timeout");
  EXPECT_EQ(events.back().at("response").at("output").at(0).at("status"), "incomplete");
}

TEST_F(ResponsesTest, CallsAndReasoningAreItemsOfTheirOwn) {
  const Api a = api();
  const Asked asked = a.read(kResponses, R"({"input": "a"})", "", 1);
  using Kind = AnswerPiece::Kind;
  Choice choice;
  choice.pieces = {{{Kind::reasoning, "h"}, {}},     {{Kind::reasoning, "m"}, {}},       {{Kind::text, "I look."}, {}},
                   {{Kind::call, "look", "c1"}, {}}, {{Kind::arguments, "{\"a\":"}, {}}, {{Kind::arguments, "1}"}, {}},
                   {{Kind::call, "look", "c2"}, {}}, {{Kind::arguments, "{}"}, {}}};
  choice.finished.reason = FinishReason::stop;
  const json::value v = json::parse(a.answer(asked, {choice}));
  const json::array& output = v.at("output").as_array();
  ASSERT_EQ(output.size(), 4u);
  EXPECT_EQ(v.at("status"), "completed");
  EXPECT_EQ(output[0].at("type"), "reasoning");
  EXPECT_EQ(output[0].at("content").at(0).at("text"), "hm");
  EXPECT_EQ(output[1].at("content").at(0).at("text"), "I look.");
  EXPECT_EQ(output[2].at("type"), "function_call");
  EXPECT_EQ(output[2].at("call_id"), "c1");
  EXPECT_EQ(output[2].at("arguments"), "{\"a\":1}");
  EXPECT_EQ(output[3].at("call_id"), "c2");
  // What came goes back as it is.
  json::object again{{"input", output}};
  again["input"].as_array().insert(again["input"].as_array().begin(), json::object{{"role", "user"}, {"content", "a"}});
  const auto m = messages(json::serialize(again));
  ASSERT_EQ(m.size(), 2u);
  EXPECT_EQ(m[1].reasoning_content + m[1].content + m[1].tool_calls.at(1).id, "hmI look.c2");
}

}  // namespace
}  // namespace assay::api
