// What may be written, as a network: rules made of states, with edges over bytes, jumps that read nothing, and calls of
// rules. A text belongs to it where its bytes lead from the beginning of the root rule to its end. Texts of a schema, a
// pattern and a grammar all become this.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "constraint/code_points.h"
#include "constraint/cpu_budget.h"

namespace assay::constraint {

using StateId = int32_t;
using RuleId = int32_t;

inline constexpr int64_t kStatesMax = 100'000;
inline constexpr int64_t kEdgesMax = 1'000'000;

// How a state stands to characters of a JSON string that need no escape ("plain"); none of these: it says nothing of
// them.
inline constexpr int32_t kNotPlain = -2;
inline constexpr int32_t kInsidePlain = -1;  // at the beginning of one character, on behalf of a state of the next kind
inline constexpr int32_t kPlainUnlimited =
    1 << 30;  // else: as many plain characters may follow, and none of them leaves the string

struct ByteEdge {
  uint8_t first = 0, last = 0;
  StateId to = 0;
};
struct Call {
  RuleId rule = 0;
  StateId back = 0;
};
struct State {
  std::vector<ByteEdge> bytes;
  std::vector<StateId> jumps;
  std::vector<Call> calls;
  int32_t plain = kNotPlain;
  bool ends_rule = false;  // then it has no edges
};
struct Rule {
  std::string name;
  StateId begin = 0, end = 0;
};

// Bytes in ranges that no edge tells apart: no range of an edge begins or ends inside one of them.
struct ByteRanks {
  std::array<uint8_t, 256> of{};     // a byte's range, ascending
  std::array<uint8_t, 256> first{};  // a range's first byte
  int n = 1;
};

struct Network {
  std::vector<State> states;
  std::vector<Rule> rules;
  RuleId root = 0;
  ByteRanks ranks;  // of all edges
};

class NetworkBuilder {
 public:
  explicit NetworkBuilder(CpuBudget budget = CpuBudget()) : budget_(budget) {}
  StateId state();  // Error(bad_request) where there are too many, as for edges, or making them takes too long
  RuleId rule(std::string name);
  void check_time() const { budget_.check(); }  // Error(bad_request), before work that makes no states
  StateId begin(RuleId rule) const { return network_.rules[static_cast<size_t>(rule)].begin; }
  StateId end(RuleId rule) const { return network_.rules[static_cast<size_t>(rule)].end; }

  void byte(StateId from, uint8_t first, uint8_t last, StateId to);
  void jump(StateId from, StateId to);
  void call(StateId from, RuleId rule, StateId back);
  void set_plain(StateId state, int32_t plain) { network_.states[static_cast<size_t>(state)].plain = plain; }
  void code_points(StateId from, const CodePoints& set, StateId to);
  void literal(StateId from, std::string_view text, StateId to);
  // The same to a state of their own, which is returned.
  StateId literal(StateId from, std::string_view text);
  StateId call(StateId from, RuleId rule);

  // Takes out what can never come to an end. Error(bad_request) where nothing is left, and where a rule begins with
  // itself.
  Network finish(RuleId root);

 private:
  void count_edge();

  Network network_;
  CpuBudget budget_;
  int64_t n_edges_ = 0;
  std::map<std::tuple<uint8_t, uint8_t, StateId>, StateId> tails_;  // states with this one edge
};

}  // namespace assay::constraint
