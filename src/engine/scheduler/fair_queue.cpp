// See fair_queue.h.
#include "engine/scheduler/fair_queue.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay::engine {
namespace {

constexpr double kQuantum = 16;        // tokens a round for a weight of 1: small, so that turns are short
constexpr size_t kClientsKept = 4096;  // more of those that only owe are forgotten, or names would pile up

}  // namespace

// Each running request is good for as many tokens as a round grants, so that free places do not all go to who is first.
bool FairQueue::can_pay(const Client& client) noexcept {
  return client.credit - kQuantum * static_cast<double>(client.n_running) > 0;
}

// What the rounds since it was seen last granted: to who waits, all of it; to others as much as pays a debt.
void FairQueue::settle(Client& client) const noexcept {
  const double granted = client.credit + (round_ - client.seen_round) * kQuantum * client.weight;
  client.credit = client.waiting.empty() ? std::min(granted, std::max(client.credit, 0.0)) : granted;
  client.seen_round = round_;
}

void FairQueue::push(uint64_t id, const std::string& client, double weight) {
  const auto [it, is_new] = clients_.try_emplace(client);
  Client& c = it->second;
  if (is_new) c.seen_round = round_;
  settle(c);
  if (c.waiting.empty()) c.credit = std::min(c.credit, 0.0);  // who was away has nothing saved
  c.weight = weight;
  c.waiting.push_back(id);
  ++n_waiting_;
}

std::optional<uint64_t> FairQueue::pop() {
  if (n_waiting_ == 0) return std::nullopt;
  // As many rounds at once as the first of them needs to be able to pay.
  double n_rounds = std::numeric_limits<double>::infinity();
  for (auto& [name, c] : clients_) {
    settle(c);
    if (c.waiting.empty()) continue;
    const double missing = kQuantum * static_cast<double>(c.n_running) - c.credit;
    n_rounds = std::min(n_rounds, missing < 0 ? 0 : std::floor(missing / (kQuantum * c.weight)) + 1);
  }
  if (n_rounds > 0) {
    round_ += n_rounds;
    for (auto& [name, c] : clients_) settle(c);
  }
  // From whose turn it is on, round about.
  const auto serves = [](const auto& entry) { return !entry.second.waiting.empty() && can_pay(entry.second); };
  auto it = std::find_if(clients_.lower_bound(turn_), clients_.end(), serves);
  if (it == clients_.end()) it = std::find_if(clients_.begin(), clients_.end(), serves);
  if (it == clients_.end()) return std::nullopt;  // a rounding error's width; the next call grants more
  turn_ = it->first;
  Client& c = it->second;
  const uint64_t id = c.waiting.front();
  c.waiting.pop_front();
  ++c.n_running;
  --n_waiting_;
  return id;
}

bool FairQueue::remove(uint64_t id) {
  for (auto& [name, c] : clients_) {
    const auto at = std::find(c.waiting.begin(), c.waiting.end(), id);
    if (at == c.waiting.end()) continue;
    settle(c);
    c.waiting.erase(at);
    --n_waiting_;
    drop_idle();
    return true;
  }
  return false;
}

void FairQueue::charge(const std::string& client, int64_t n_tokens) {
  const auto it = clients_.find(client);
  if (it == clients_.end()) return;
  settle(it->second);
  it->second.credit -= static_cast<double>(n_tokens);
}

void FairQueue::over(const std::string& client) {
  const auto it = clients_.find(client);
  if (it == clients_.end()) return;
  --it->second.n_running;
  drop_idle();
}

// Who neither waits nor runs and owes nothing is new when it comes again.
void FairQueue::drop_idle() {
  for (auto it = clients_.begin(); it != clients_.end();) {
    Client& c = it->second;
    settle(c);
    const bool is_idle = c.waiting.empty() && c.n_running == 0;
    it = is_idle && (c.credit >= 0 || clients_.size() > kClientsKept) ? clients_.erase(it) : std::next(it);
  }
}

}  // namespace assay::engine
