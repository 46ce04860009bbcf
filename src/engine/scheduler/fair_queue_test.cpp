// Turns between clients.
#include "engine/scheduler/fair_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

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

// Clients that always have something waiting, on several places at once, with requests of unlike and unknown lengths.
TEST(FairQueue, SharesOnManyPlacesAreWithinATenth) {
  FairQueue queue;
  const std::map<std::string, double> weights = {{"a", 1}, {"b", 2}, {"c", 0.5}, {"d", 1}};
  std::map<uint64_t, std::string> whose;
  uint64_t next = 0;
  const auto add = [&](const std::string& client) {
    whose[++next] = client;
    queue.push(next, client, weights.at(client));
  };
  for (const auto& [client, weight] : weights) {
    for (int i = 0; i < 20; ++i) add(client);
  }
  std::map<std::string, double> n_tokens;
  struct Place {
    std::string client;
    int64_t left = 0;
  };
  std::vector<Place> places(8);
  uint64_t random = 1;
  double total = 0;
  for (int step = 0; step < 40'000; ++step) {
    for (Place& p : places) {
      if (p.left == 0) {
        const auto id = queue.pop();
        ASSERT_TRUE(id.has_value());
        random = random * 6364136223846793005u + 1442695040888963407u;
        p = {whose.at(*id), 1 + static_cast<int64_t>((random >> 33) % (whose.at(*id) == "a" ? 300 : 40))};
        add(p.client);
      }
      queue.charge(p.client, 1);
      ++n_tokens[p.client], ++total;
      if (--p.left == 0) queue.over(p.client);
    }
  }
  for (const auto& [client, weight] : weights)
    EXPECT_NEAR(n_tokens[client] / total, weight / 4.5, 0.1 * weight / 4.5) << client;
}

// Who comes with one request at a time is no better off than who has them wait.
TEST(FairQueue, DebtsOutlastAShortAbsence) {
  FairQueue queue;
  uint64_t id = 0;
  for (int i = 0; i < 3; ++i) queue.push(++id, "steady", 1);
  queue.push(1000000, "guest", 1);
  double n_guest = 0, n_all = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool is_guest = *queue.pop() >= 1000000;
    const std::string client = is_guest ? "guest" : "steady";
    const int64_t n = is_guest ? 200 : 20;
    queue.charge(client, n);
    queue.over(client);
    n_all += static_cast<double>(n), n_guest += is_guest ? static_cast<double>(n) : 0;
    queue.push(is_guest ? 1000000 : ++id, client, 1);  // the guest had gone
  }
  EXPECT_NEAR(n_guest / n_all, 0.5, 0.05);
}

}  // namespace
}  // namespace assay::engine
