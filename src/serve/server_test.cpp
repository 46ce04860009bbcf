// The server through its socket, on a small random model: the same bits as alone, errors, keep-alive, clients that go,
// drain.
#include "assay/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "assay/error.h"
#include "assay/session.h"
#include "programs/running_server.h"
#include "serve/server_state.h"

namespace assay {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using test::Client;
using test::events;
using test::get;
using test::post;
using test::Reply;

class ServerTest : public test::RunningServer {};

TEST_F(ServerTest, ThirtyTwoAtOnceHaveTheBitsTheyHaveAlone) {
  start();
  std::vector<std::thread> clients;
  std::vector<Reply> replies(32);
  const auto prompt_of = [](size_t i) {
    return std::string(1 + i % 7, 'a') + (i % 2 ? "b" : "") + std::string(i, 'b');
  };
  for (size_t i = 0; i < replies.size(); ++i) {
    clients.emplace_back([&, i] {
      const std::string body =
          std::string("{\"prompt\": \"") + prompt_of(i) + "\", \"max_tokens\": " + std::to_string(4 + i % 9) +
          ", \"logprobs\": 1, \"seed\": " + std::to_string(i) + ", \"temperature\": " + (i % 3 ? "1.5" : "0") +
          (i % 4 == 1 ? ", \"stream\": true" : "") + "}";
      replies[i] = ask(post("/v1/completions", body));
    });
  }
  for (std::thread& t : clients) t.join();
  for (size_t i = 0; i < replies.size(); ++i) {
    SCOPED_TRACE(i);
    const Generation g = alone(prompt_of(i), i, i % 3 ? 1.5 : 0, static_cast<int64_t>(4 + i % 9));
    ASSERT_EQ(replies[i].status, 200) << replies[i].body;
    std::string text;
    std::vector<double> logprobs;
    std::vector<std::string> parts = {replies[i].body};
    if (i % 4 == 1) {
      parts = events(replies[i].body);
      ASSERT_EQ(parts.back(), "[DONE]");
      parts.pop_back();
    }
    for (const std::string& part : parts) {
      const json::value v = json::parse(part);
      const json::value& choice = v.at("choices").at(0);
      text += choice.at("text").as_string().c_str();
      if (choice.at("logprobs").is_null()) continue;
      for (const json::value& x : choice.at("logprobs").at("token_logprobs").as_array())
        logprobs.push_back(x.as_double());
    }
    EXPECT_EQ(text, g.text);
    ASSERT_EQ(logprobs.size(), g.logprobs.size());
    for (size_t t = 0; t < logprobs.size(); ++t)
      EXPECT_NEAR(logprobs[t], g.logprobs[t].logprob, 1e-14);  // the reader here is off by a bit
  }
  const std::string metrics = ask(get("/metrics")).body;
  EXPECT_THAT(metrics, HasSubstr("assay_request_success_total{finished_reason=\"length\"}"));
  EXPECT_THAT(metrics, HasSubstr("assay_num_requests_running 0\n"));
  EXPECT_THAT(metrics, HasSubstr("assay_e2e_request_latency_seconds_count 32\n"));
}

TEST_F(ServerTest, ChatStreamsAndWholeAnswersAreTheSame) {
  start();
  const std::string ask_for =
      R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 12, "n": 2, "seed": 3, "temperature": 1.5, "stop": ["zzz"])";
  const Reply whole = ask(post("/chat/completions", ask_for + "}"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::value v = json::parse(whole.body);
  const Reply again =
      ask(post("/v1/chat/completions", ask_for + R"(, "stream": true, "stream_options": {"include_usage": true}})"));
  EXPECT_THAT(again.head, HasSubstr("Content-Type: text/event-stream"));
  std::vector<std::string> parts = events(again.body);
  ASSERT_GT(parts.size(), 6u);
  EXPECT_EQ(parts.back(), "[DONE]");
  parts.pop_back();
  const json::value usage = json::parse(parts.back());
  EXPECT_EQ(usage.at("usage").at("completion_tokens"), v.at("usage").at("completion_tokens"));
  EXPECT_TRUE(usage.at("choices").as_array().empty());
  parts.pop_back();
  std::map<int64_t, std::string> text;
  std::map<int64_t, int> n_ends;
  for (const std::string& part : parts) {
    const json::value chunk = json::parse(part);
    EXPECT_EQ(chunk.at("object"), "chat.completion.chunk");
    EXPECT_EQ(chunk.at("seed"), 3);
    const json::value& choice = chunk.at("choices").at(0);
    if (const json::value* content = choice.at("delta").as_object().if_contains("content"))
      text[choice.at("index").as_int64()] += content->as_string().c_str();
    if (!choice.at("finish_reason").is_null()) ++n_ends[choice.at("index").as_int64()];
  }
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(text[i], v.at("choices").at(static_cast<size_t>(i)).at("message").at("content").as_string().c_str());
    EXPECT_EQ(n_ends[i], 1);
  }
  EXPECT_NE(text[0], text[1]);
  const Reply one = ask(
      post("/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 12, "seed": 3, "temperature": 1.5})"));
  EXPECT_EQ(json::parse(one.body).at("choices").at(0).at("message").at("content").as_string().c_str(), text[0]);
}

TEST_F(ServerTest, AStopIdEndsAnAnswerAndTimingsTellItsPace) {
  start();
  const std::string ask_for = R"({"prompt": "ab", "max_tokens": 12, "seed": 3, "temperature": 1.5, "ignore_eos": true)";
  const Generation g = alone("ab", 3, 1.5, 4);
  const json::value plain = json::parse(ask(post("/v1/completions", ask_for + "}")).body);
  EXPECT_EQ(plain.as_object().if_contains("timings"), nullptr);
  const std::string ends = R"(, "timings_per_token": true, "stop_token_ids": [)" + std::to_string(g.ids.at(3)) + "]";
  const Reply whole = ask(post("/v1/completions", ask_for + ends + "}"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::value v = json::parse(whole.body);
  const auto n = std::find(g.ids.begin(), g.ids.end(), g.ids[3]) - g.ids.begin() + 1;
  EXPECT_EQ(v.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(v.at("usage").at("completion_tokens"), n);
  const std::string text = v.at("choices").at(0).at("text").as_string().c_str();
  EXPECT_EQ(text, model_->tokenizer()->decode(std::span(g.ids).first(static_cast<size_t>(n - 1))));
  EXPECT_EQ(v.at("timings").at("predicted_n"), n);
  EXPECT_EQ(v.at("timings").at("cache_n").as_int64() + v.at("timings").at("prompt_n").as_int64(),
            v.at("usage").at("prompt_tokens"));
  std::vector<std::string> parts = events(ask(post("/v1/completions", ask_for + ends + R"(, "stream": true})")).body);
  ASSERT_GT(parts.size(), 2u);
  EXPECT_EQ(parts.back(), "[DONE]");
  parts.pop_back();
  std::string again;
  int64_t last = 0;
  for (const std::string& part : parts) {
    const json::value chunk = json::parse(part);
    again += chunk.at("choices").at(0).at("text").as_string().c_str();
    const json::value& t = chunk.at("timings");
    EXPECT_GE(t.at("predicted_n").as_int64(), last);
    last = t.at("predicted_n").as_int64();
    EXPECT_GE(t.at("prompt_ms").to_number<double>(), 0);
  }
  EXPECT_EQ(again, text);
  EXPECT_EQ(last, n);
  const Reply refused = ask(post("/v1/completions", R"({"prompt": "a", "stop_token_ids": [5, 99999]})"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("stop_token_ids[1]: needs a token id from 0 to"));
}

TEST_F(ServerTest, PromptsAreLoggedWhereThatIsMeant) {
  options_.pooling = Pooling::mean;
  for (const bool logs : {false, true}) {
    options_.log_prompts = logs;
    ends_ = false;
    start();
    EXPECT_EQ(ask(post("/v1/completions", R"({"prompt": ["ab\"", "bb"], "n": 2, "max_tokens": 1})")).status, 200);
    EXPECT_EQ(
        ask(post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "aab"}], "max_tokens": 1})"))
            .status,
        200);
    EXPECT_EQ(ask(post("/v1/embeddings", R"({"input": "aaab"})")).status, 200);
    stop();
    EXPECT_EQ(log().find("\"prompts\"") != std::string::npos, logs);
    EXPECT_EQ(log().find("aab") != std::string::npos, logs);
  }
  const std::string lines = log();
  std::vector<std::string> prompts;
  for (size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
    const json::value line = json::parse(lines.substr(at, lines.find('\n', at) - at));
    if (const json::value* list = line.as_object().if_contains("prompts")) {
      for (const json::value& p : list->as_array()) prompts.emplace_back(p.as_string());
    }
  }
  ASSERT_EQ(prompts.size(), 4u);
  EXPECT_THAT(prompts[0], HasSubstr("ab\""));
  EXPECT_THAT(prompts[1], HasSubstr("bb"));
  EXPECT_THAT(prompts[2], HasSubstr("<user>aab</s>"));
  EXPECT_THAT(prompts[3], HasSubstr("aaab"));
}

TEST_F(ServerTest, PathsAnswerAndErrorsAreOpenAis) {
  start();
  EXPECT_EQ(ask(get("/health")).body, R"({"status":"ok"})");
  EXPECT_EQ(ask(get("/v1/health")).status, 200);
  EXPECT_EQ(json::parse(ask(get("/v1/models")).body).at("data").at(0).at("id"), "tiny");
  EXPECT_EQ(ask(get("/v1/models/tin%79")).status, 200);
  EXPECT_EQ(ask(get("/v1/models/other")).status, 404);
  const json::value props = json::parse(ask(get("/props")).body);
  EXPECT_EQ(props.at("total_slots"), 4);
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx"), 256);
  EXPECT_EQ(props.at("chat_template"), test::kTinyTemplate);
  EXPECT_THAT(ask(get("/props")).body, Not(HasSubstr(folder_.path().string())));  // no path of the machine
  EXPECT_EQ(json::parse(ask(get("/openapi.json")).body).at("openapi"), "3.1.0");
  EXPECT_EQ(ask(post("/tokenize", R"({"content": "ab"})")).body, R"({"tokens":[261]})");
  EXPECT_EQ(ask(post("/detokenize", R"({"tokens": [264]})")).body, R"({"content":"a"})");
  EXPECT_EQ(ask(post("/apply-template", R"({"messages": [{"role": "user", "content": "a"}]})")).body,
            R"({"prompt":"<user>a</s>"})");
  const Reply unknown = ask(post("/v1/completions", R"({"prompt": "a", "colour": 1})"));
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(
      json::parse(unknown.body),
      json::parse(
          R"({"error": {"message": "there is no field colour", "type": "invalid_request_error", "param": "colour", "code": "unknown_parameter"}})"));
  EXPECT_EQ(ask(get("/v2/x")).status, 404);
  EXPECT_EQ(ask(post("/v1/responses", "{}")).status, 400);
  EXPECT_EQ(ask(post("/v1/rerank", "{}")).status, 404);
  const Reply method = ask(get("/v1/completions"));
  EXPECT_EQ(method.status, 405);
  EXPECT_THAT(method.head, HasSubstr("Allow: POST\r\n"));
  EXPECT_EQ(ask("DELETE /v1/models/tiny HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 405);  // B89
  EXPECT_EQ(ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}").status, 415);
  EXPECT_EQ(ask(post("/v1/completions", "x", "Content-Encoding: gzip\r\n")).status, 415);
  EXPECT_EQ(ask(get("/health", "Origin: https://evil.example\r\n")).status, 403);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
  const Reply head = ask("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_THAT(head.head, HasSubstr("Content-Length: 15"));
  EXPECT_THAT(ask(get("/health", "X-Request-Id: abc-1\r\n")).head, HasSubstr("x-request-id: abc-1\r\n"));
  EXPECT_THAT(ask(get("/health", "X-Request-Id: a b\r\n")).head, Not(HasSubstr("a b")));
  EXPECT_EQ(ask("\x16\x03\x01 junk").status, 400);
  EXPECT_EQ(ask(post("/v1/completions", "{}", "Transfer-Encoding: chunked\r\n")).status, 400);
  EXPECT_THAT(log(), HasSubstr(R"("path":"/v1/completions","status":400)"));
  EXPECT_EQ(ask(get("/health")).status, 200);  // after all that
}

TEST_F(ServerTest, AConnectionServesManyRequestsInOrder) {
  start();
  Client client(server_->port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += i % 2 ? get("/health") : post("/tokenize", R"({"content": "b"})");
  client.send(all);  // before any answer
  for (int i = 0; i < 50; ++i) EXPECT_THAT(client.reply().body, HasSubstr(i % 2 ? "ok" : "tokens"));
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 16\r\nExpect: "
      "100-continue\r\n\r\n");
  EXPECT_EQ(client.reply().status, 100);
  client.send(R"({"content": "a"})");
  EXPECT_EQ(client.reply().status, 200);
  client.send(get("/health", "Connection: close\r\n"));
  EXPECT_THAT(client.reply().head, HasSubstr("Connection: close"));
  EXPECT_FALSE(client.receive());
}

TEST_F(ServerTest, KeysAreNeededWhereThereAreAny) {
  options_.keys = parse_api_keys("sesame name=ali");
  start();
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(ask(get("/v1/models")).status, 401);
  EXPECT_EQ(ask(get("/v1/models", "Authorization: Bearer sesame\r\n")).status, 200);
  Client client(server_->port());  // refused by its head, before its body is there
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "1000\r\n\r\n");
  const Reply refused = client.reply();
  EXPECT_EQ(refused.status, 401);
  EXPECT_FALSE(client.receive());
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})", "X-Api-Key: sesame\r\n")).status, 200);
  EXPECT_THAT(log(), HasSubstr("\"key\":\"ali\""));
  EXPECT_THAT(log(), Not(HasSubstr("sesame")));
}

TEST_F(ServerTest, KeysShareTheCacheOnlyWhereThatIsMeant) {
  options_.keys = parse_api_keys("one\ntwo");
  for (const bool shares : {false, true}) {
    options_.share_cache = shares;
    ends_ = false;
    start();
    const auto n_cached = [&](const std::string& key, const std::string& salt) {
      const Reply r = ask(post("/v1/completions",
                               "{\"prompt\": \"" + std::string(150, 'a') + "bbab\", \"max_tokens\": 1" + salt + "}",
                               "Authorization: Bearer " + key + "\r\n"));
      EXPECT_EQ(r.status, 200) << r.body;
      return json::parse(r.body).at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
    };
    EXPECT_EQ(n_cached("one", ""), 0);
    EXPECT_GT(n_cached("one", ""), 0);
    EXPECT_EQ(n_cached("two", "") > 0, shares);
    EXPECT_EQ(n_cached("two", R"(, "cache_salt": "x")"), 0);
    stop();
  }
}

// Cut at any moment, streamed or whole, one choice or three: what was held is free again.
TEST_F(ServerTest, RandomCutsLeaveNothingBehind) {
  options_.scheduler.context.n_ctx = 2048;
  options_.scheduler.context.n_sequences = 2;
  options_.scheduler.caches_prompts = false;  // every page is free where nobody runs
  start();
  const char* rounds = std::getenv("ASSAY_CUTS");
  const int n_cuts = rounds != nullptr ? std::atoi(rounds) : 50;
  uint64_t random = 7;
  const auto below = [&](uint64_t n) {
    return random = random * 6364136223846793005u + 1442695040888963407u, (random >> 33) % n;
  };
  const std::string prompts[] = {std::string(700, 'a') + "b", "ab", "b"};
  for (int i = 0; i < n_cuts; ++i) {
    std::vector<std::unique_ptr<Client>> clients;
    for (uint64_t k = 0, n = 1 + below(4); k < n; ++k) {
      clients.push_back(std::make_unique<Client>(server_->port()));
      const std::string request =
          post("/v1/completions", "{\"prompt\": \"" + prompts[below(3)] +
                                      "\", \"ignore_eos\": true, \"n\": " + std::to_string(1 + 2 * below(2)) +
                                      ", \"max_tokens\": 1000, \"stream\": " + (below(2) ? "true}" : "false}"));
      const bool is_half = below(8) == 0;
      clients.back()->send(is_half ? request.substr(0, 1 + below(request.size() - 1)) : request);
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(below(20'000)));  // where it is cut is what varies, not what is found
  }
  for (int i = 0; i < 3000 && metric("num_requests_running") + metric("num_requests_waiting") > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(metric("num_requests_running"), 0);
  EXPECT_EQ(metric("num_requests_waiting"), 0);
  EXPECT_EQ(metric("kv_cache_pages_free"), metric("kv_cache_pages"));
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})")).status, 200);
  EXPECT_LE(metric("num_connections"), 2);
}

TEST_F(ServerTest, ClientsThatGoFreeTheirPlaces) {
  options_.scheduler.context.n_ctx = 100'000;
  options_.scheduler.context.n_sequences = 1;
  start();
  const std::string endless = R"({"prompt": "a", "ignore_eos": true, "stream": )";
  for (const char* stream : {"true", "false"}) {
    Client client(server_->port());
    client.send(post("/v1/completions", endless + stream + "}"));
    if (std::string(stream) == "true") {
      EXPECT_TRUE(client.receive_until("data: "));
    }
  }
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})")).status,
            200);  // it could not run beside them
  const auto n_cancelled = [&] {
    int64_t n = 0;
    for (const char* phase : {"queued", "prefill", "decode"})
      n += metric(std::string("requests_cancelled_total{phase=\"") + phase + "\"}");
    return n;
  };
  comes([&] { return n_cancelled() == 2; });  // the second may be read after the third
  EXPECT_EQ(n_cancelled(), 2);
}

// The beginning of a next request that nobody has read yet does not hide that its client has gone.
TEST_F(ServerTest, AClientThatGoesBehindUnreadBytesFreesItsPlace) {
  options_.scheduler.context.n_ctx = 100'000;
  start();
  {
    test::Client client(server_->port());
    client.send(post("/v1/completions", R"({"prompt": "a", "ignore_eos": true, "max_tokens": 90000})"));
    ASSERT_TRUE(comes([&] { return metric("num_requests_running") == 1; }));
    client.send("POST /v1/comp");
  }
  EXPECT_TRUE(comes([&] { return metric("num_requests_running") == 0; }));
  EXPECT_LT(metric("generation_tokens_total"), 90'000);
}

TEST_F(ServerTest, TheFingerprintCoversWhatRequestsLeaveOut) {
  const auto found = [&] {
    start();
    const Reply reply = ask(get("/props"));
    stop();
    return std::string(json::parse(reply.body).at("system_fingerprint").as_string());
  };
  const std::string usual = found();
  EXPECT_EQ(found(), usual);
  options_.defaults.sampling.temperature = 0.25;
  const std::string cool = found();
  EXPECT_NE(cool, usual);
  options_.template_variables = R"({"a": 1})";
  EXPECT_NE(found(), cool);
}

TEST(ServerErrors, OfItsOwnNameNoFileOfTheMachine) {
  serve::Exchange e;
  const api::ApiError own = serve::to_api_error(Error(Errc::bad_file, "/srv/secret.gguf: was cut"), e);
  EXPECT_EQ(own.status, 500);
  EXPECT_EQ(std::string(own.what()).find("secret"), std::string::npos);
  EXPECT_EQ(e.fault, "/srv/secret.gguf: was cut");
  serve::Exchange other;
  EXPECT_STREQ(serve::to_api_error(Error(Errc::bad_request, "top_k: is -1"), other).what(), "top_k: is -1");
  EXPECT_TRUE(other.fault.empty());
}

TEST_F(ServerTest, AFullQueueTellsWhenToComeAgain) {
  options_.scheduler.context.n_ctx = 100'000;
  options_.scheduler.context.n_sequences = 1;
  options_.scheduler.n_waiting_max = 1;
  start();
  Client first(server_->port()), second(server_->port());
  first.send(post("/v1/completions", R"({"prompt": "a", "ignore_eos": true, "stream": true})"));
  EXPECT_TRUE(first.receive_until("data: "));
  second.send(post("/v1/completions", R"({"prompt": "a", "ignore_eos": true, "stream": true})"));
  EXPECT_TRUE(second.receive_until("200 OK"));
  const Reply third = ask(post("/v1/completions", R"({"prompt": "a"})"));
  EXPECT_EQ(third.status, 429);
  EXPECT_THAT(third.head, HasSubstr("Retry-After: "));
  EXPECT_THAT(third.body, HasSubstr("--max-queue raises the 1"));
}

TEST_F(ServerTest, DrainFinishesWhatRunsAndRefusesTheRest) {
  start();
  Client running(server_->port());
  running.send(post("/v1/completions", R"({"prompt": "a", "ignore_eos": true, "stream": true, "max_tokens": 250})"));
  ASSERT_TRUE(running.receive_until("data: "));
  Client late(server_->port());
  late.send("POST /v1/completions HTTP/1.1\r\n");
  ends_ = true;
  const Reply whole = running.reply();
  EXPECT_THAT(whole.body, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_TRUE(whole.body.ends_with("data: [DONE]\n\n"));
  stop();
}

TEST_F(ServerTest, DrainTellsWhenToAskAgain) {
  options_.scheduler.context.n_ctx = 100'000;
  start();
  {
    Client running(server_->port());
    running.send(post("/v1/completions", R"({"prompt": "a", "ignore_eos": true, "stream": true})"));
    ASSERT_TRUE(running.receive_until("data: "));
    ends_ = true;
    const auto ask = [this](const std::string& request) {
      Client client(server_->port());
      client.send(request);
      return client.reply();
    };
    const std::string health = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    Reply reply = ask(health);
    for (int i = 0; i < 10'000 && reply.status == 200; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      reply = ask(health);
    }
    EXPECT_EQ(reply.status, 503);
    EXPECT_THAT(reply.head, HasSubstr("Retry-After: 1"));
    reply = ask(post("/v1/completions", R"({"prompt": "a"})"));
    EXPECT_EQ(reply.status, 503);
    EXPECT_THAT(reply.head, HasSubstr("Retry-After: 1"));
    EXPECT_THAT(reply.body, HasSubstr("\"code\":\"draining\""));
  }
  stop();  // the client has gone, so nothing is left to wait for
}

TEST_F(ServerTest, DrainTellsWhatItCutsShort) {
  options_.scheduler.context.n_ctx = 100'000;
  options_.drain_s_max = 0.2;
  start();
  Client running(server_->port());
  running.send(post("/v1/completions", R"({"prompt": "a", "ignore_eos": true, "stream": true})"));
  ASSERT_TRUE(running.receive_until("data: "));
  ends_ = true;
  const Reply cut = running.reply();
  EXPECT_THAT(cut.body, HasSubstr("--drain-timeout raises it"));
  EXPECT_TRUE(cut.body.ends_with("data: [DONE]\n\n"));
  stop();
}

TEST_F(ServerTest, RefusesToOpenUpUnasked) {
  options_.host = "0.0.0.0";
  EXPECT_THROW(Server(model_, options_), Error);
  options_.host = "example.org";
  EXPECT_THROW(Server(model_, options_), Error);
  options_.host = "127.0.0.1";
  start();
  options_.port = server_->port();
  EXPECT_THROW(Server(model_, options_), Error);  // the port is taken
}

TEST_F(ServerTest, EmbeddingsHaveTheBitsTheyHaveAlone) {
  options_.pooling = Pooling::mean;
  start();
  EmbedOptions embed;
  embed.pooling = Pooling::mean;
  embed.context.n_threads = 2;
  embed.context.n_ctx = 64;
  Embedder alone(model_, embed);
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back(
        [&] { EXPECT_EQ(ask(post("/v1/completions", R"({"prompt": "ab", "max_tokens": 30})")).status, 200); });
  }
  for (const char* path : {"/v1/embeddings", "/embeddings"}) {
    const Reply r = ask(post(path, R"({"input": [[1, 5, 6], [7], [8, 9]], "user": "me"})"));
    ASSERT_EQ(r.status, 200) << r.body;
    const json::value found = json::parse(r.body);
    const std::vector<std::vector<TokenId>> texts = {{1, 5, 6}, {7}, {8, 9}};
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::vector<double> expected = alone.embed({&texts[i], 1}).at(0);
      const json::array& vector = found.at("data").at(i).at("embedding").get_array();
      ASSERT_EQ(vector.size(), expected.size());
      for (size_t j = 0; j < expected.size(); ++j)
        EXPECT_EQ(vector[j].to_number<float>(), static_cast<float>(expected[j]));
    }
    EXPECT_EQ(found.at("usage").at("prompt_tokens"), 6);
  }
  for (std::thread& other : others) other.join();
}

TEST_F(ServerTest, EmbeddingsNeedAPooling) {
  start();
  const Reply r = ask(post("/v1/embeddings", R"({"input": "ab"})"));
  EXPECT_EQ(r.status, 400);
  EXPECT_THAT(r.body, HasSubstr("--pooling"));
  EXPECT_EQ(ask(get("/v1/embeddings")).status, 405);
}

}  // namespace
}  // namespace assay
