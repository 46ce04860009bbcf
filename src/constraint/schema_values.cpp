// See schema_values.h.
#include "constraint/schema_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "constraint/pattern.h"
#include "constraint/schema_keywords.h"

namespace assay::constraint {
namespace json = boost::json;
namespace {

int order(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const auto key = [](const Decimal& d) { return std::pair(d.whole.size(), d.whole + '.' + d.fraction); };
  const int sign = a.negative ? -1 : 1;
  return key(a) == key(b) ? 0 : key(a) < key(b) ? -sign : sign;
}

void tighten(std::optional<Bound>& bound, Bound other, bool is_least) {
  if (bound) {
    const int o = order(other.value, bound->value) * (is_least ? 1 : -1);
    if (o < 0 || (o == 0 && !other.exclusive)) return;
  }
  bound = std::move(other);
}

bool has_bare_names(const json::value& root) {
  std::vector<const json::value*> open = {&root};
  while (!open.empty()) {
    const json::value& v = *open.back();
    open.pop_back();
    if (const json::array* array = v.if_array()) {
      for (const json::value& item : *array) open.push_back(&item);
    } else if (const json::object* object = v.if_object()) {
      for (const auto& [key, value] : *object) {
        if (!is_bare_name(view(key))) return false;
        open.push_back(&value);
      }
    }
  }
  return true;
}

// What can be written at all: a text is left out that has what ends it, and an object with a name that needs quotes
// where there are none.
void add_text(const JsonParts& parts, std::set<std::string>& texts, const json::value& value) {
  const Spelling& spelling = parts.spelling();
  if (value.is_null() && !spelling.nulls) return;
  if (spelling.bare_names && !has_bare_names(value)) return;
  std::string text = parts.spelled(value);
  if (spelling.raw && spelling.quote.empty() && text.find(spelling.excluded) != std::string::npos) return;
  texts.insert(std::move(text));
}

// The texts share what they have in common at their beginning; they are sorted.
StateId one_of(NetworkBuilder& net, const std::set<std::string>& texts, StateId from) {
  const StateId end = net.state();
  std::vector<StateId> path = {from};  // [n]: behind n bytes of the last text
  std::string last;
  for (const std::string& text : texts) {
    const auto n =
        static_cast<size_t>(std::mismatch(last.begin(), last.end(), text.begin(), text.end()).first - last.begin());
    path.resize(n + 1);
    for (size_t i = n; i < text.size(); ++i)
      path.push_back(net.literal(path.back(), std::string_view(text).substr(i, 1)));
    net.jump(path.back(), end);
    last = text;
  }
  return end;
}

}  // namespace

StateId number_value(const ValueSchema& s, bool integer, StateId from) {
  NumberRange range;
  range.integer = integer;
  for (const char* name : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const json::value* v = s.object.if_contains(name);
    if (v == nullptr) continue;
    if (!v->is_number()) {
      s.reader.problem(pointer_with(s.pointer, name), fmt::format("needs a number, found {}", shown(*v)));
      continue;
    }
    const bool exclusive = std::string_view(name).starts_with("ex");
    const bool is_least = std::string_view(name).ends_with("inimum");
    tighten(is_least ? range.least : range.most, {decimal_of(*v), exclusive}, is_least);
  }
  if (const json::value* v = s.object.if_contains("multipleOf")) {
    if (!integer || !v->is_number() || v->to_number<double>() != 1)
      s.reader.problem(s.pointer + "/multipleOf", "multiples are not served, but of 1 for an integer");
  }
  if (!range.least && !range.most) return s.parts.number(from, integer);
  if (range.least && range.most && order(range.least->value, range.most->value) > 0) {
    s.reader.problem(s.pointer + (s.object.contains("minimum") ? "/minimum" : "/exclusiveMinimum"),
                     "is above the maximum: no number satisfies it");
    return from;
  }
  try {
    return s.parts.number(from, range);
  } catch (const Error& error) {
    s.reader.problem(s.pointer, error.what());
    return from;
  }
}

StateId string_value(const ValueSchema& s, StateId from) {
  const int64_t least = s.reader.count(s.object, s.pointer, "minLength").value_or(0);
  const std::optional<int64_t> most = s.reader.count(s.object, s.pointer, "maxLength");
  if (most && *most < least) {
    s.reader.problem(s.pointer + "/maxLength", "is below minLength: no string satisfies it");
    return from;
  }
  // Each character is a state: said before they are made.
  if (least > kStatesMax || most.value_or(0) > kStatesMax) {
    s.reader.problem(s.pointer + (least > kStatesMax ? "/minLength" : "/maxLength"),
                     fmt::format("needs more than {} states", kStatesMax));
    return from;
  }
  const json::value *pattern = s.object.if_contains("pattern"), *format = s.object.if_contains("format");
  if (pattern != nullptr && format != nullptr) s.reader.problem(s.pointer + "/format", "is not served beside pattern");
  const json::value* named = pattern != nullptr ? pattern : format;
  if (named == nullptr) return s.parts.string(from, least, most);
  const std::string at = s.pointer + (pattern != nullptr ? "/pattern" : "/format");
  if (!named->is_string()) {
    s.reader.problem(at, fmt::format("needs a string, found {}", shown(*named)));
    return from;
  }
  std::string_view text = view(named->get_string());
  if (pattern == nullptr) {
    text = format_pattern(text);
    if (text.empty())
      s.reader.problem(
          at, fmt::format("{} is not served: date, time, date-time, uuid, ipv4, ipv6 and email are", shown(*named)));
  }
  s.net.check_time();
  try {
    return pattern_string(s.net, s.parts, from, parse_pattern(text), least, most);
  } catch (const Error& error) {
    s.reader.problem(at, error.what());
    return from;
  }
}

StateId listed_value(const ValueSchema& s, StateId from) {
  const bool is_const = s.object.contains("const");
  const std::string_view name = is_const ? "const" : "enum";
  s.reader.refuse_beside(s.object, name, "type", s.pointer);
  const unsigned types = s.reader.types_asked(s.object, s.pointer);
  std::set<std::string> texts;  // a set: a value that stands twice is one
  const json::value& list = s.object.at(json::string_view(name.data(), name.size()));
  const auto add = [&](const json::value& v) {
    const unsigned type = type_of(v);
    if ((types & type) != 0 || (type == kInteger && (types & kNumber) != 0)) add_text(s.parts, texts, v);
  };
  if (is_const) {
    add(list);
  } else if (!list.is_array()) {
    s.reader.problem(pointer_with(s.pointer, name), fmt::format("needs an array, found {}", shown(list)));
  } else {
    for (const json::value& v : list.get_array()) add(v);
  }
  if (texts.empty()) s.reader.problem(pointer_with(s.pointer, name), "has no value that satisfies the schema");
  return one_of(s.net, texts, from);
}

}  // namespace assay::constraint
