// Clients that do not read their streams: what is unsent of them stays small, their requests stand aside for others,
// and they are parted from in the end; who reads on has the answer of who read all along.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "programs/running_server.h"

namespace assay {
namespace {

using test::get;
using test::post;
using test::Reply;
using ::testing::HasSubstr;

class UnreadTest : public test::RunningServer {
 protected:
  UnreadTest() {
    options_.scheduler.context.n_ctx = 100'000;
    options_.scheduler.context.n_sequences = 1;
    options_.scheduler.caches_prompts = false;  // every page is free where nobody runs
    options_.unsent_bytes_max = 64 << 10;
    options_.unsent_s_max = 600;
  }
  // Large pieces, so that the system's own buffers are full soon.
  static std::string long_stream(int64_t n_tokens) {
    return post("/v1/completions",
                R"({"prompt": "a", "ignore_eos": true, "stream": true, "logprobs": 20, "seed": 4, "max_tokens": )" +
                    std::to_string(n_tokens) + "}");
  }
  // A request stands aside, and not only until the system has taken what was unsent at that moment.
  bool comes_to_stand_aside() {
    return comes([&] {
      const int64_t n_tokens = metric("generation_tokens_total");
      if (metric("num_requests_held") != 1) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return metric("num_requests_held") == 1 && metric("generation_tokens_total") == n_tokens;
    });
  }
};

TEST_F(UnreadTest, StandsAsideAndGoesOnTheSame) {
  start();
  constexpr int64_t kTokens = 8000;  // twice what the system holds of a stream
  test::Client client(server_->port(), 4096);
  client.send(long_stream(kTokens));
  ASSERT_TRUE(comes_to_stand_aside());
  EXPECT_EQ(metric("num_requests_running"), 0);
  EXPECT_EQ(metric("kv_cache_pages_free"), metric("kv_cache_pages"));
  const int64_t n_tokens = metric("generation_tokens_total");
  EXPECT_LT(n_tokens, kTokens);
  // The one place there is serves others meanwhile.
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt": "b", "max_tokens": 3, "ignore_eos": true})")).status, 200);
  EXPECT_EQ(metric("generation_tokens_total"), n_tokens + 3);
  const Reply slow = client.reply();
  const Reply brisk = ask(long_stream(kTokens));
  const std::vector<std::string> found = test::events(slow.body), wanted = test::events(brisk.body);
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_EQ(found.back(), "[DONE]");
  for (size_t i = 0; i + 1 < found.size(); ++i) {  // ids and times differ
    ASSERT_EQ(found[i].substr(found[i].find("\"choices\"")), wanted[i].substr(wanted[i].find("\"choices\""))) << i;
  }
  EXPECT_EQ(metric("num_requests_held"), 0);
  EXPECT_EQ(metric("preemptions_total"), 0);
}

TEST_F(UnreadTest, IsPartedFromInTheEnd) {
  options_.unsent_s_max = 1;
  options_.body_bytes_per_s = 1e9;  // what was taken at the beginning puts nothing off
  start();
  test::Client client(server_->port(), 4096);
  client.send(long_stream(90'000));
  ASSERT_TRUE(comes([&] { return log().find("client gone") != std::string::npos; }));
  EXPECT_TRUE(comes([&] { return metric("num_requests_held") == 0; }));
  EXPECT_TRUE(comes([&] { return metric("num_requests_running") == 0; }));
  EXPECT_TRUE(comes([&] { return metric("kv_cache_pages_free") == metric("kv_cache_pages"); }));
  EXPECT_THAT(ask(get("/metrics")).body, HasSubstr("assay_requests_cancelled_total{phase=\"decode\"} 1\n"));
  EXPECT_LT(metric("generation_tokens_total"), 90'000);
  EXPECT_EQ(metric("num_connections"), 1);
}

TEST_F(UnreadTest, TheServerEndsBesideOne) {
  options_.drain_s_max = 0.2;
  start();
  test::Client client(server_->port(), 4096);
  client.send(long_stream(90'000));
  ASSERT_TRUE(comes_to_stand_aside());
  stop();  // comes back
}

}  // namespace
}  // namespace assay
