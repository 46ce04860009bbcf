// Every limit of a request, through the socket: what goes beyond is refused with its name, its value and the flag that
// raises it; raised, it is served; /props and /openapi.json have them all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "programs/running_server.h"

namespace assay {
namespace {

namespace json = boost::json;
using test::get;
using test::post;
using test::Reply;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string list_of(size_t n, const std::string& item) {
  std::string list = "[";
  for (size_t i = 0; i < n; ++i) list += (i > 0 ? "," : "") + item;
  return list + "]";
}

std::string limited(const std::string& more) {
  return post("/v1/chat/completions",
              R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, )" + more + "}");
}

std::string biases(size_t n) {
  std::string members;
  for (size_t i = 0; i < n; ++i) members += (i > 0 ? "," : "") + ("\"" + std::to_string(i) + "\": 1");
  return "{" + members + "}";
}

std::string deep(size_t n) {
  return post("/v1/chat/completions", R"({"messages": )" + std::string(n, '[') + std::string(n, ']') + "}");
}

const std::string kTool = R"({"type": "function", "function": {"name": "f"}})";

class LimitsTest : public test::RunningServer {};

TEST_F(LimitsTest, EachErrorHasNameValueAndFlag) {
  options_.limits.body_bytes = 100'000;
  start();
  const struct {
    std::string request;
    int status;
    const char *name, *value, *flag;
  } cases[] = {
      {"GET /" + std::string(9'000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "target", "8192", "--max-uri"},
      {get("/health", "A: " + std::string(33'000, 'b') + "\r\n"), 431, "headers", "32768", "--max-header-bytes"},
      {get("/health",
           [] {
             std::string all;
             for (int i = 0; i < 64; ++i) all += "A: b\r\n";
             return all;
           }()),
       431, "headers", "64", "--max-headers"},
      {post("/tokenize", std::string(100'001, ' ')), 413, "body", "100000", "--max-body"},
      {deep(100), 400, "nested", "64", "--max-json-depth"},
      {limited(R"("n": 9)"), 400, "n:", "8", "--max-n"},
      {limited(R"("stop": )" + list_of(17, R"("x")")), 400, "stop:", "16", "--max-stop"},
      {limited(R"("stop": [")" + std::string(257, 'x') + R"("])"), 400, "stop[0]:", "256", "--max-stop-bytes"},
      {limited(R"("stop": ")" + std::string(257, 'x') + R"(")"), 400, "stop:", "256", "--max-stop-bytes"},
      {limited(R"("logprobs": true, "top_logprobs": 21)"), 400, "top_logprobs:", "20", "--max-top-logprobs"},
      {post("/v1/completions", R"({"prompt": "a", "logprobs": 21})"), 400, "logprobs:", "20", "--max-top-logprobs"},
      {limited(R"("logit_bias": )" + biases(1025)), 400, "logit_bias:", "1024", "--max-logit-bias"},
      {limited(R"("tools": )" + list_of(129, kTool)), 400, "tools:", "128", "--max-tools"},
      {post("/v1/completions", R"({"prompt": "a", "max_tokens": 300})"), 400, "context", "256", "-c"},
  };
  for (const auto& each : cases) {
    const Reply r = ask(each.request);
    EXPECT_EQ(r.status, each.status) << each.flag << r.body;
    EXPECT_THAT(r.body, AllOf(HasSubstr(each.name), HasSubstr(each.value), HasSubstr(each.flag)));
  }
  // What is too little is no limit that a flag raises.
  EXPECT_THAT(ask(limited(R"("n": 0)")).body, ::testing::Not(HasSubstr("--max-n")));
}

TEST_F(LimitsTest, RaisedTheyServe) {
  RequestLimits& limits = options_.limits;
  limits.n = 9;
  limits.n_stop = 17;
  limits.n_stop_bytes = 257;
  limits.n_top_logprobs = 21;
  limits.n_logit_bias = 130;
  limits.json_depth = 3;
  limits.n_headers = 70;
  limits.head_bytes = 50'000;
  limits.target_bytes = 20'000;
  start();
  const auto status = [this](const std::string& request) { return ask(request).status; };
  EXPECT_EQ(status(limited(R"("n": 9)")), 200);
  EXPECT_EQ(status(limited(R"("n": 10)")), 400);
  EXPECT_EQ(status(limited(R"("stop": )" + list_of(17, "\"" + std::string(257, 'x') + "\""))), 200);
  EXPECT_EQ(status(limited(R"("stop": )" + list_of(18, R"("x")"))), 400);
  EXPECT_EQ(status(limited(R"("logprobs": true, "top_logprobs": 21)")), 200);
  EXPECT_EQ(status(limited(R"("logit_bias": )" + biases(130))), 200);
  EXPECT_EQ(status(limited(R"("logit_bias": )" + biases(131))), 400);
  EXPECT_THAT(ask(deep(4)).body, HasSubstr("deeper than 3: --max-json-depth"));
  EXPECT_EQ(status(get("/health?" + std::string(15'000, 'a'), "A: " + std::string(30'000, 'b') + "\r\n")), 200);
  const json::value document = json::parse(ask(get("/openapi.json")).body);
  const json::value& schema =
      document.at("paths").at("/v1/chat/completions").at("post").at("requestBody").at("content");
  EXPECT_THAT(json::serialize(schema.at("application/json").at("schema").at("properties").at("n")),
              HasSubstr(R"("maximum":9)"));
}

TEST_F(LimitsTest, PropsAndTheDocumentHaveThemAll) {
  options_.limits.n_tools = 7;
  options_.idle_s_max = 61;
  start();
  const json::value props = json::parse(ask(get("/props")).body);
  const json::object told = json::parse(ask(get("/openapi.json")).body).at("info").at("x-limits").as_object();
  EXPECT_EQ(told.size(), 24u);
  for (const auto& [name, limit] : told) {
    EXPECT_EQ(props.at("limits").at(name), limit.at("value")) << name;
    EXPECT_TRUE(limit.at("flag").as_string().starts_with("-")) << name;
  }
  EXPECT_EQ(told.at("tools").at("value"), 7);
  EXPECT_EQ(told.at("idle_seconds").at("value"), 61);
  EXPECT_EQ(told.at("positions").at("value"), 256);
  EXPECT_EQ(told.at("queue").at("value"), 64);
}

// One connection too many is told so, and those that are there are served.
TEST_F(LimitsTest, AConnectionTooManyIsTurnedAwayWithAWord) {
  options_.n_connections_max = 2;
  start();
  test::Client a(server_->port()), b(server_->port());
  a.send(get("/health"));
  EXPECT_EQ(a.reply().status, 200);
  b.send(get("/health"));
  EXPECT_EQ(b.reply().status, 200);
  test::Client c(server_->port());
  const Reply r = c.reply();
  EXPECT_EQ(r.status, 503);
  EXPECT_THAT(r.head, HasSubstr("Retry-After: 1"));
  EXPECT_THAT(r.body, HasSubstr("there are 2 connections: --max-connections raises it"));
  EXPECT_TRUE(c.is_over(std::chrono::milliseconds(10'000)));
  a.send(get("/health"));
  EXPECT_EQ(a.reply().status, 200);
}

}  // namespace
}  // namespace assay
