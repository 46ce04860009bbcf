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

// How values are written; JSON where nothing is said. Chat templates have notations of their own for what is JSON to
// everyone else.
struct Spelling {
  std::string quote = "\"";  // around texts, as bytes of the network
  bool raw = false;          // a text has no escapes, and cannot have `excluded` in it
  std::string excluded = {};
  std::string comma = ", ", colon = ": ";
  bool bare_names = false;  // names of members stand without quotes
  bool nulls = true;        // false: where a text may stand, a null cannot
};
bool is_bare_name(std::string_view name);  // letters, digits, _, - and .

class JsonParts {
 public:
  explicit JsonParts(NetworkBuilder& net, Spelling spelling = {});
  const Spelling& spelling() const noexcept { return spelling_; }

  // Each goes on from a state and returns the one behind it.
  StateId string(StateId from, int64_t least, std::optional<int64_t> most);
  StateId number(StateId from, bool integer);
  // Error(bad_request) where a bound has more digits than are written.
  StateId number(StateId from, const NumberRange& range);
  StateId any(StateId from, int depth = kAnyDepth);
  StateId any_object(StateId from, int depth = kAnyDepth);
  StateId any_array(StateId from, int depth = kAnyDepth);
  std::string spelled(const boost::json::value& value) const;
  std::string spelled_name(std::string_view name) const;  // of a member, with what stands before its value
  // A name that is none of these, as it stands in an object.
  StateId other_name(StateId from, const std::vector<std::string>& names);

  // The edges for one character inside a text, spelled the one way that needs no \u; others cannot come.
  void character(StateId from, const CodePoints& set, StateId to);
  // Where a text stands that has read so many bytes of what is excluded, and goes on with one of a set: parts of the
  // set and where each leads. What would complete it is left out.
  std::vector<std::pair<CodePoints, size_t>> ways(size_t n_excluded, const CodePoints& set) const;

 private:
  RuleId plain_character();
  StateId raw_text(StateId from, int64_t least, std::optional<int64_t> most);
  bool stays_inside(size_t n_excluded) const;
  StateId free_name(StateId from);
  RuleId any_rule(int depth);
  StateId magnitude(StateId from, const std::optional<Bound>& least, const std::optional<Bound>& most, bool integer,
                    int digits_max);

  NetworkBuilder& net_;
  const Spelling spelling_;
  std::vector<uint32_t> excluded_;  // its characters
  RuleId character_ = -1, integer_ = -1, number_ = -1, string_ = -1;
  std::vector<RuleId> any_;
};

std::string json_dumps(const boost::json::value& value);  // with Python's blanks; text stays UTF-8
std::string spelled(const boost::json::value& value, const Spelling& spelling);

}  // namespace assay::constraint
