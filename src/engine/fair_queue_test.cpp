// Turns between clients.
#include "engine/fair_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace assay::engine {
namespace {

TEST(FairQueue, FirstComeFirstServedWithinAClient) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 3; ++id) queue.push(id, "a", 1);
  EXPECT_EQ(queue.size(), 3);
  EXPECT_TRUE(queue.remove(2));
  EXPECT_FALSE(queue.remove(2));
  EXPECT_EQ(queue.pop(), 1u);
  EXPECT_EQ(queue.pop(), 3u);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(queue.size(), 0);
}

TEST(FairQueue, AClientWithManyRequestsDoesNotHoldUpAnother) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 100; ++id) queue.push(id, "many", 1);
  EXPECT_EQ(queue.pop(), 1u);
  queue.charge("many", 500);
  queue.push(101, "one", 1);
  EXPECT_EQ(queue.pop(), 101u);
}

TEST(FairQueue, TokensAreSharedByWeight) {
  FairQueue queue;
  uint64_t next = 0;
  std::map<uint64_t, std::string> whose;
  const auto add = [&](const std::string& client, double weight) {
    whose[++next] = client;
    queue.push(next, client, weight);
  };
  std::map<std::string, int64_t> n_tokens;
  add("a", 1);
  add("b", 3);
  for (int i = 0; i < 400; ++i) {
    add("a", 1);
    add("b", 3);
    const std::string client = whose.at(*queue.pop());
    const int64_t n = client == "a" ? 10 : 25;  // of unlike lengths
    queue.charge(client, n);
    queue.over(client);
    n_tokens[client] += n;
  }
  EXPECT_NEAR(static_cast<double>(n_tokens["b"]) / static_cast<double>(n_tokens["a"]), 3, 0.1);
}

TEST(FairQueue, WhoWasAwayHasNothingSaved) {
  FairQueue queue;
  uint64_t id = 0;
  for (int i = 0; i < 10; ++i) queue.push(++id, "a", 1);
  for (int i = 0; i < 5; ++i) {
    queue.pop();
    queue.charge("a", 100);
  }
  for (int i = 0; i < 10; ++i) queue.push(++id, "b", 1);
  int n_b = 0;
  for (int i = 0; i < 8; ++i) {
    const bool is_b = *queue.pop() > 10;
    queue.charge(is_b ? "b" : "a", 100);
    n_b += is_b;
  }
  EXPECT_LE(n_b, 5);  // turns, not all of them to b
  EXPECT_GE(n_b, 4);
}

}  // namespace
}  // namespace assay::engine
