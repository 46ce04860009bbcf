// Who comes next: deficit round robin by tokens. In each round a client with something waiting is granted a few tokens
// times its weight; it is served while it has any left, and pays for what its requests run, also with what it has not
// yet. Within a client first come, first served. Knows numbers of requests only.
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
  std::optional<uint64_t> pop();                             // the next one, which counts as running from now on
  bool remove(uint64_t id);                                  // a waiting one
  void charge(const std::string& client, int64_t n_tokens);  // that a running request had
  void over(const std::string& client);                      // one of its running requests is over
  int64_t size() const noexcept { return n_waiting_; }

 private:
  struct Client {
    std::deque<uint64_t> waiting;
    int64_t n_running = 0;
    double weight = 1;
    double credit = 0;      // tokens; below 0: it had more than was granted
    double seen_round = 0;  // until which its credit is counted
  };
  using Clients = std::map<std::string, Client>;
  static bool can_pay(const Client& client) noexcept;
  void settle(Client& client) const noexcept;
  void drop_idle();

  Clients clients_;   // with something that waits or runs, or with a debt
  std::string turn_;  // whose it is
  int64_t n_waiting_ = 0;
  double round_ = 0;  // so many were granted
};

}  // namespace assay::engine
