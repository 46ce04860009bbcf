// Building a network, and what is checked of it as a whole. Every walk has a list of its own: nothing here calls
// itself.
#include "constraint/network.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"

namespace assay::constraint {
namespace {

size_t at(int32_t id) noexcept { return static_cast<size_t>(id); }

struct CallSite {
  StateId from = 0, back = 0;
};

// The states from which the end of their rule can be reached. through_bytes: by any edges; else without reading a byte.
std::vector<char> reaching_end(const Network& net, bool through_bytes) {
  std::vector<std::vector<StateId>> before(net.states.size());  // by jumps and bytes
  std::vector<std::vector<std::pair<StateId, RuleId>>> calls_back(net.states.size());
  std::vector<std::vector<CallSite>> sites(net.rules.size());
  for (StateId s = 0; at(s) < net.states.size(); ++s) {
    const State& state = net.states[at(s)];
    for (const StateId to : state.jumps) before[at(to)].push_back(s);
    if (through_bytes) {
      for (const ByteEdge& e : state.bytes) before[at(e.to)].push_back(s);
    }
    for (const Call& c : state.calls) {
      calls_back[at(c.back)].emplace_back(s, c.rule);
      sites[at(c.rule)].push_back({s, c.back});
    }
  }
  std::vector<RuleId> rule_begun(net.states.size(), -1);
  for (RuleId r = 0; at(r) < net.rules.size(); ++r) rule_begun[at(net.rules[at(r)].begin)] = r;
  std::vector<char> reaches(net.states.size(), 0);
  std::vector<StateId> open;
  const auto mark = [&](StateId s) {
    if (reaches[at(s)] == 0) {
      reaches[at(s)] = 1;
      open.push_back(s);
    }
  };
  for (const Rule& rule : net.rules) mark(rule.end);
  while (!open.empty()) {
    const StateId s = open.back();
    open.pop_back();
    for (const StateId from : before[at(s)]) mark(from);
    for (const auto& [from, rule] : calls_back[at(s)]) {
      if (reaches[at(net.rules[at(rule)].begin)] != 0) mark(from);
    }
    if (rule_begun[at(s)] < 0) continue;
    for (const CallSite& site : sites[at(rule_begun[at(s)])]) {
      if (reaches[at(site.back)] != 0) mark(site.from);
    }
  }
  return reaches;
}

void prune(Network& net, const std::vector<char>& reaches) {
  const auto is_dead = [&](StateId s) { return reaches[at(s)] == 0; };
  for (State& state : net.states) {
    std::erase_if(state.bytes, [&](const ByteEdge& e) { return is_dead(e.to); });
    std::erase_if(state.jumps, is_dead);
    std::erase_if(state.calls, [&](const Call& c) { return is_dead(c.back) || is_dead(net.rules[at(c.rule)].begin); });
  }
}

// Goes past states that only jump to one other.
void shorten(Network& net) {
  std::vector<StateId> target(net.states.size(), -1);
  const auto find = [&](StateId s) {
    std::vector<StateId> path;
    while (target[at(s)] < 0) {
      const State& state = net.states[at(s)];
      const bool only_jumps = state.bytes.empty() && state.calls.empty() && state.jumps.size() == 1 && !state.ends_rule;
      if (!only_jumps || state.jumps[0] == s || path.size() > net.states.size()) {
        target[at(s)] = s;
      } else {
        path.push_back(s);
        s = state.jumps[0];
      }
    }
    for (const StateId p : path) target[at(p)] = target[at(s)];
    return target[at(s)];
  };
  for (State& state : net.states) {
    for (ByteEdge& e : state.bytes) e.to = find(e.to);
    for (Call& c : state.calls) c.back = find(c.back);
  }
}

ByteRanks ranks_of(const Network& net) {
  std::array<bool, 257> begins{};
  for (const State& state : net.states) {
    for (const ByteEdge& e : state.bytes) begins[e.first] = begins[e.last + size_t{1}] = true;
  }
  ByteRanks ranks;
  for (size_t b = 1; b < 256; ++b) {
    if (begins[b]) ranks.first[static_cast<size_t>(ranks.n++)] = static_cast<uint8_t>(b);
    ranks.of[b] = static_cast<uint8_t>(ranks.n - 1);
  }
  return ranks;
}

// Edges that read nothing: jumps, calls, and calls of a rule that may read nothing.
struct SilentEdge {
  StateId to = 0;
  bool enters = false;  // a rule
};

std::vector<SilentEdge> silent_edges(const Network& net, const std::vector<char>& nullable, StateId s) {
  std::vector<SilentEdge> edges;
  for (const StateId to : net.states[at(s)].jumps) edges.push_back({to, false});
  for (const Call& c : net.states[at(s)].calls) {
    const StateId begin = net.rules[at(c.rule)].begin;
    edges.push_back({begin, true});
    if (nullable[at(begin)] != 0) edges.push_back({c.back, false});
  }
  return edges;
}

// Tarjan's strongly connected components with a list in place of calls: the component of each state.
std::vector<int32_t> components(const Network& net, const std::vector<char>& nullable) {
  const size_t n = net.states.size();
  std::vector<int32_t> index(n, -1), low(n, 0), component(n, -1);
  std::vector<StateId> stack;
  struct Frame {
    StateId state;
    std::vector<SilentEdge> edges;
    size_t next = 0;
  };
  int32_t n_seen = 0, n_components = 0;
  std::vector<Frame> frames;
  const auto enter = [&](StateId s) {
    index[at(s)] = low[at(s)] = n_seen++;
    stack.push_back(s);
    frames.push_back({s, silent_edges(net, nullable, s), 0});
  };
  for (StateId root = 0; at(root) < n; ++root) {
    if (index[at(root)] >= 0) continue;
    enter(root);
    while (!frames.empty()) {
      Frame& frame = frames.back();
      const StateId s = frame.state;
      if (frame.next < frame.edges.size()) {
        const StateId to = frame.edges[frame.next++].to;
        if (index[at(to)] < 0) {
          enter(to);
        } else if (component[at(to)] < 0) {
          low[at(s)] = std::min(low[at(s)], index[at(to)]);
        }
        continue;
      }
      frames.pop_back();
      if (!frames.empty()) low[at(frames.back().state)] = std::min(low[at(frames.back().state)], low[at(s)]);
      if (low[at(s)] != index[at(s)]) continue;
      for (StateId member = -1; member != s;) {
        member = stack.back();
        stack.pop_back();
        component[at(member)] = n_components;
      }
      ++n_components;
    }
  }
  return component;
}

void refuse_left_recursion(const Network& net) {
  const std::vector<char> nullable = reaching_end(net, false);
  const std::vector<int32_t> component = components(net, nullable);
  std::vector<RuleId> rule_begun(net.states.size(), -1);
  for (RuleId r = 0; at(r) < net.rules.size(); ++r) rule_begun[at(net.rules[at(r)].begin)] = r;
  for (StateId s = 0; at(s) < net.states.size(); ++s) {
    for (const SilentEdge& e : silent_edges(net, nullable, s)) {
      if (!e.enters || component[at(s)] != component[at(e.to)]) continue;
      throw Error(Errc::bad_request, fmt::format("{} begins with itself: needs something before it comes again",
                                                 net.rules[at(rule_begun[at(e.to)])].name));
    }
  }
}

}  // namespace

StateId NetworkBuilder::state() {
  budget_.step();
  if (static_cast<int64_t>(network_.states.size()) >= kStatesMax) {
    throw Error(Errc::bad_request,
                fmt::format("it needs more than {} states: lengths, counts and lists make them", kStatesMax));
  }
  network_.states.emplace_back();
  return static_cast<StateId>(network_.states.size() - 1);
}

RuleId NetworkBuilder::rule(std::string name) {
  Rule rule{std::move(name), state(), state()};
  network_.states[at(rule.end)].ends_rule = true;
  network_.rules.push_back(std::move(rule));
  return static_cast<RuleId>(network_.rules.size() - 1);
}

void NetworkBuilder::count_edge() {
  budget_.step();
  if (++n_edges_ > kEdgesMax)
    throw Error(Errc::bad_request, fmt::format("it needs more than {} edges between its states", kEdgesMax));
}

void NetworkBuilder::byte(StateId from, uint8_t first, uint8_t last, StateId to) {
  count_edge();
  network_.states[at(from)].bytes.push_back({first, last, to});
}

void NetworkBuilder::jump(StateId from, StateId to) {
  count_edge();
  network_.states[at(from)].jumps.push_back(to);
}

void NetworkBuilder::call(StateId from, RuleId rule, StateId back) {
  count_edge();
  network_.states[at(from)].calls.push_back({rule, back});
}

void NetworkBuilder::code_points(StateId from, const CodePoints& set, StateId to) {
  for (const ByteRanges& ranges : utf8_ranges(set)) {
    StateId next = to;
    for (int i = ranges.n - 1; i > 0; --i) {
      const auto [first, last] = ranges.at[at(i)];
      const auto [it, is_new] = tails_.try_emplace({first, last, next}, -1);
      if (is_new) {
        it->second = state();
        byte(it->second, first, last, next);
      }
      next = it->second;
    }
    byte(from, ranges.at[0].first, ranges.at[0].second, next);
  }
}

void NetworkBuilder::literal(StateId from, std::string_view text, StateId to) {
  if (text.empty()) return jump(from, to);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto b = static_cast<uint8_t>(text[i]);
    const StateId next = i + 1 == text.size() ? to : state();
    byte(from, b, b, next);
    from = next;
  }
}

StateId NetworkBuilder::literal(StateId from, std::string_view text) {
  const StateId to = state();
  literal(from, text, to);
  return to;
}

StateId NetworkBuilder::call(StateId from, RuleId rule) {
  const StateId back = state();
  call(from, rule, back);
  return back;
}

Network NetworkBuilder::finish(RuleId root) {
  network_.root = root;
  budget_.check();
  refuse_left_recursion(network_);
  budget_.check();
  const std::vector<char> reaches = reaching_end(network_, true);
  if (reaches[at(begin(root))] == 0) throw Error(Errc::bad_request, "no text satisfies it: none comes to an end");
  prune(network_, reaches);
  shorten(network_);
  network_.ranks = ranks_of(network_);
  budget_.check();
  return std::move(network_);
}

}  // namespace assay::constraint
