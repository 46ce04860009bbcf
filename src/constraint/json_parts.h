// The parts of JSON as pieces of a network: strings, numbers, any value. Blanks are those of Python's json.dumps: one
// after a comma and one after a colon, none elsewhere.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/network.h"

namespace assay::constraint {

inline constexpr int kDigitsMax = 17;         // of a number; a double holds no more
inline constexpr int kBoundedDigitsMax = 15;  // of a number with bounds: as many decide alike in decimal and as doubles
inline constexpr int kAnyDepth = 16;          // of a value of which nothing is asked

// A number as written: what bounds are compared by.
struct Decimal {
  bool negative = false;
  std::string whole, fraction;  // digits; whole without zeros in front, empty for 0; fraction without zeros behind
  bool is_zero() const { return whole.empty() && fraction.empty(); }
};
Decimal decimal_of(const boost::json::value& number);

struct Bound {
  Decimal value;
  bool exclusive = false;
};
struct NumberRange {
  std::optional<Bound> least, most;
  bool integer = false;
};

class JsonParts {
 public:
  explicit JsonParts(NetworkBuilder& net) : net_(net) {}

  // Each goes on from a state and returns the one behind it.
  StateId string(StateId from, int64_t least, std::optional<int64_t> most);
  StateId number(StateId from, bool integer);
  // Error(bad_request) where a bound has more digits than are written.
  StateId number(StateId from, const NumberRange& range);
  StateId any(StateId from, int depth = kAnyDepth);
  StateId any_object(StateId from, int depth = kAnyDepth);
  StateId any_array(StateId from, int depth = kAnyDepth);
  StateId value(StateId from, const boost::json::value& value);  // this one
  // A name that is none of these, with its quotes.
  StateId other_name(StateId from, const std::vector<std::string>& names);

  // The edges for one character inside a string, spelled the one way that needs no \u; others cannot come.
  void character(StateId from, const CodePoints& set, StateId to);
  RuleId plain_character();

 private:
  RuleId any_rule(int depth);
  StateId magnitude(StateId from, const std::optional<Bound>& least, const std::optional<Bound>& most, bool integer,
                    int digits_max);

  NetworkBuilder& net_;
  RuleId character_ = -1, integer_ = -1, number_ = -1, string_ = -1;
  std::vector<RuleId> any_;
};

std::string json_dumps(const boost::json::value& value);  // with Python's blanks; text stays UTF-8

}  // namespace assay::constraint
