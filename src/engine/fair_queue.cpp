// See fair_queue.h.
#include "engine/fair_queue.h"

#include <algorithm>
#include <tuple>

namespace assay::engine {

void FairQueue::push(uint64_t id, const std::string& client, double weight) {
  const auto [it, is_new] = clients_.try_emplace(client);
  if (is_new) it->second.served = level_;
  it->second.weight = weight;
  it->second.waiting.push_back(id);
  ++n_waiting_;
}

std::optional<uint64_t> FairQueue::pop() {
  // Of equally served ones the one with less at work, then the one that came first.
  const auto rank = [](const Client& c) {
    return std::tuple(c.served, static_cast<double>(c.n_running) / c.weight, c.waiting.front());
  };
  Client* next = nullptr;
  for (auto& [name, client] : clients_) {
    if (!client.waiting.empty() && (next == nullptr || rank(client) < rank(*next))) next = &client;
  }
  if (next == nullptr) return std::nullopt;
  level_ = std::max(level_, next->served);
  const uint64_t id = next->waiting.front();
  next->waiting.pop_front();
  ++next->n_running;
  --n_waiting_;
  return id;
}

bool FairQueue::remove(uint64_t id) {
  for (auto it = clients_.begin(); it != clients_.end(); ++it) {
    auto& waiting = it->second.waiting;
    const auto at = std::find(waiting.begin(), waiting.end(), id);
    if (at == waiting.end()) continue;
    waiting.erase(at);
    --n_waiting_;
    drop_if_idle(it);
    return true;
  }
  return false;
}

void FairQueue::charge(const std::string& client, int64_t n_tokens) {
  const auto it = clients_.find(client);
  if (it != clients_.end()) it->second.served += static_cast<double>(n_tokens) / it->second.weight;
}

void FairQueue::over(const std::string& client) {
  const auto it = clients_.find(client);
  if (it == clients_.end()) return;
  --it->second.n_running;
  drop_if_idle(it);
}

// Its tokens are forgotten with it, or names would pile up.
void FairQueue::drop_if_idle(Clients::iterator client) {
  if (client->second.waiting.empty() && client->second.n_running == 0) clients_.erase(client);
}

}  // namespace assay::engine
