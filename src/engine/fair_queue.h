// Who comes next: of the clients with something waiting the one that had the fewest tokens for its weight; within a client
// first come, first served. Knows numbers of requests only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace assay::engine {

class FairQueue {
 public:
  void push(uint64_t id, const std::string& client, double weight);
  std::optional<uint64_t> pop();      // the next one, which counts as running from now on
  bool remove(uint64_t id);           // a waiting one
  // Tokens that a running request had. A client that was away begins level with the least served one.
  void charge(const std::string& client, int64_t n_tokens);
  void over(const std::string& client);  // one of its running requests is over
  int64_t size() const noexcept { return n_waiting_; }

 private:
  struct Client {
    std::deque<uint64_t> waiting;
    int64_t n_running = 0;
    double weight = 1;
    double served = 0;  // tokens / weight
  };
  using Clients = std::map<std::string, Client>;
  void drop_if_idle(Clients::iterator client);

  Clients clients_;  // with something that waits or runs
  int64_t n_waiting_ = 0;
  double level_ = 0;  // what the least served one had when somebody was taken last
};

}  // namespace assay::engine
