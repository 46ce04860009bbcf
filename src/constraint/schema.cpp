// See schema.h. A schema calls itself as deep as its document is nested, which the reader limits; what a $ref names
// becomes a rule, compiled when all else is.
#include "constraint/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "constraint/json_parts.h"
#include "constraint/pattern.h"
#include "constraint/schema_keywords.h"

namespace assay::constraint {
namespace json = boost::json;
namespace {

std::string shown(const json::value& v) {
  const std::string text = json::serialize(v);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

class Compiler {
 public:
  Compiler(NetworkBuilder& net, JsonParts& parts, const json::value& document, std::vector<SchemaProblem>& problems)
      : document_(document), problems_(problems), net_(net), parts_(&parts) {}

  RuleId run() {
    const RuleId root = rule_for(document_, "");
    finish();
    return root;
  }

  RuleId run(const MemberMarks& marks) {
    marks_ = &marks;
    const RuleId root = net_.rule("the arguments");
    const json::value* schema = resolved(document_, &document_);
    const json::object* object = schema != nullptr ? schema->if_object() : nullptr;
    if (object == nullptr || object->contains("anyOf") || object->contains("oneOf") || object->contains("allOf") ||
        object->contains("enum") || object->contains("const")) {
      problem("", "needs properties: calls of this model name one argument after the other");
      return root;
    }
    if (&document_ != schema) refuse_beside(document_.get_object(), "$ref", "", "");
    check_keywords(*object, "");
    types_asked(*object, "");
    check_all(*object, "", kObject);
    net_.jump(members_of(*object, "", net_.begin(root)), net_.end(root));
    marks_ = nullptr;
    finish();
    return root;
  }

 private:
  struct Open {
    const json::value* schema;
    std::string pointer;
    RuleId rule;
    JsonParts* parts;
  };

  void finish() {
    JsonParts* const parts = parts_;
    while (!open_.empty()) {
      const Open o = open_.back();
      open_.pop_back();
      parts_ = o.parts;
      net_.jump(compile(*o.schema, o.pointer, net_.begin(o.rule)), net_.end(o.rule));
    }
    parts_ = parts;
  }

  void problem(const std::string& pointer, std::string message) {
    if (problems_.size() < 1000) problems_.push_back({pointer, std::move(message)});
  }

  RuleId rule_for(const json::value& schema, const std::string& pointer) {
    const auto [it, is_new] = rules_.try_emplace({pointer, parts_}, -1);
    if (is_new) {
      it->second = net_.rule(pointer.empty() ? "the schema" : pointer);
      open_.push_back({&schema, pointer, it->second, parts_});
    }
    return it->second;
  }

  StateId compile(const json::value& schema, const std::string& pointer, StateId from) {
    if (schema.is_bool()) {
      if (!schema.get_bool()) problem(pointer, "false: no value satisfies it");
      return parts_->any(from);
    }
    if (!schema.is_object()) {
      problem(pointer, fmt::format("a schema is an object or a boolean, found {}", shown(schema)));
      return from;
    }
    const json::object& object = schema.get_object();
    check_keywords(object, pointer);
    if (const json::value* ref = object.if_contains("$ref")) return reference(object, *ref, pointer, from);
    if (object.contains("const") || object.contains("enum")) return listed(object, pointer, from);
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      if (object.contains(name)) return combined(object, name, pointer, from);
    }
    return typed(object, pointer, from);
  }

  void check_keywords(const json::object& object, const std::string& pointer) {
    for (const auto& [key, value] : object) {
      const std::string_view name = view(key);
      const std::string at = pointer_with(pointer, name);
      switch (keyword_kind(name)) {
        case Keyword::annotation:
          break;
        case Keyword::enforced:
          if (name == "$id" && !pointer.empty())
            problem(at, "is served at the root alone: references are JSON pointers of the one document");
          break;
        case Keyword::refused:
          if (name == "uniqueItems" && value.is_bool() && !value.get_bool()) break;
          if ((name == "minProperties" || name == "minContains") && value.is_int64() && value.get_int64() == 0) break;
          problem(at, std::string(refusal(name)));
          break;
        case Keyword::unknown:
          problem(at, "is no keyword that is known: nothing is left out in silence");
          break;
      }
    }
  }

  // Names beside `except` that ask for something.
  void refuse_beside(const json::object& object, std::string_view except, std::string_view also,
                     const std::string& pointer) {
    for (const auto& [key, value] : object) {
      const std::string_view name = view(key);
      if (name == except || name == also || name == "$id" || keyword_kind(name) != Keyword::enforced) continue;
      problem(pointer_with(pointer, name), fmt::format("is not served beside {}", except));
    }
  }

  StateId reference(const json::object& object, const json::value& ref, const std::string& pointer, StateId from) {
    refuse_beside(object, "$ref", "", pointer);
    const std::string at = pointer + "/$ref";
    if (!ref.is_string()) {
      problem(at, fmt::format("needs a string, found {}", shown(ref)));
      return from;
    }
    std::string target_pointer;
    const json::value* target = find_reference(document_, view(ref.get_string()), target_pointer);
    if (target == nullptr) {
      problem(at, fmt::format("needs a JSON pointer into this document (\"#/...\"), found {}", shown(ref)));
      return from;
    }
    return net_.call(from, rule_for(*target, target_pointer));
  }

  StateId listed(const json::object& object, const std::string& pointer, StateId from) {
    const bool is_const = object.contains("const");
    const std::string_view name = is_const ? "const" : "enum";
    refuse_beside(object, name, "type", pointer);
    const unsigned types = types_asked(object, pointer);
    std::set<std::string> texts;  // a set: a value that stands twice is one
    const json::value& list = object.at(json::string_view(name.data(), name.size()));
    const auto add = [&](const json::value& v) {
      const unsigned type = type_of(v);
      if ((types & type) != 0 || (type == kInteger && (types & kNumber) != 0)) add_text(texts, v);
    };
    if (is_const) {
      add(list);
    } else if (!list.is_array()) {
      problem(pointer_with(pointer, name), fmt::format("needs an array, found {}", shown(list)));
    } else {
      for (const json::value& v : list.get_array()) add(v);
    }
    if (texts.empty()) problem(pointer_with(pointer, name), "has no value that satisfies the schema");
    return one_of(texts, from);
  }

  // What can be written at all: a text is left out that has what ends it.
  void add_text(std::set<std::string>& texts, const json::value& value) const {
    const Spelling& spelling = parts_->spelling();
    if (value.is_null() && !spelling.nulls) return;
    std::string text = parts_->spelled(value);
    if (spelling.raw && spelling.quote.empty() && text.find(spelling.excluded) != std::string::npos) return;
    texts.insert(std::move(text));
  }

  // The texts share what they have in common at their beginning; they are sorted.
  StateId one_of(const std::set<std::string>& texts, StateId from) {
    const StateId end = net_.state();
    std::vector<StateId> path = {from};  // [n]: behind n bytes of the last text
    std::string last;
    for (const std::string& text : texts) {
      const auto n =
          static_cast<size_t>(std::mismatch(last.begin(), last.end(), text.begin(), text.end()).first - last.begin());
      path.resize(n + 1);
      for (size_t i = n; i < text.size(); ++i)
        path.push_back(net_.literal(path.back(), std::string_view(text).substr(i, 1)));
      net_.jump(path.back(), end);
      last = text;
    }
    return end;
  }

  StateId combined(const json::object& object, std::string_view name, const std::string& pointer, StateId from) {
    refuse_beside(object, name, "", pointer);
    const json::value& list = object.at(json::string_view(name.data(), name.size()));
    const std::string at = pointer_with(pointer, name);
    if (!list.is_array() || list.get_array().empty()) {
      problem(at, fmt::format("needs an array of schemas, found {}", shown(list)));
      return from;
    }
    const json::array& schemas = list.get_array();
    if (name == "allOf" && schemas.size() > 1) problem(at, "is served with one schema: several at a time are not");
    if (name == "oneOf") require_apart(schemas, at);
    const StateId end = net_.state();
    for (size_t i = 0; i < schemas.size(); ++i) {
      if (schemas[i].is_bool() && !schemas[i].get_bool() && schemas.size() > 1) continue;
      net_.jump(compile(schemas[i], pointer_with(at, std::to_string(i)), from), end);
    }
    return end;
  }

  void require_apart(const json::array& schemas, const std::string& pointer) {
    net_.check_time();
    constexpr size_t kOneOfMax = 64;
    if (schemas.size() > kOneOfMax)
      return problem(pointer, fmt::format("has {} schemas, {} are served", schemas.size(), kOneOfMax));
    for (size_t i = 0; i < schemas.size(); ++i) {
      for (size_t j = i + 1; j < schemas.size(); ++j) {
        if (exclude_each_other(document_, schemas[i], schemas[j])) continue;
        return problem(pointer, fmt::format("one value may satisfy both {} and {} of it: needs types, constants or a "
                                            "required member that tell them apart; anyOf is served",
                                            i, j));
      }
    }
  }

  // What `type` says; without it, the types that the other keywords speak of, or all where there are none.
  unsigned types_asked(const json::object& object, const std::string& pointer) {
    const json::value* type = object.if_contains("type");
    unsigned types = 0;
    if (type == nullptr) {
      for (const auto& [key, value] : object) types |= types_of_keyword(view(key));
      return types == 0 ? kAllTypes : types;
    }
    const auto add = [&](const json::value& v) {
      const auto one = v.is_string() ? type_named(view(v.get_string())) : std::nullopt;
      if (!one)
        problem(pointer + "/type",
                fmt::format("needs null, boolean, object, array, string, number or integer, found {}", shown(v)));
      types |= one.value_or(0);
    };
    if (!type->is_array()) {
      add(*type);
    } else {
      for (const json::value& v : type->get_array()) add(v);
      if (type->get_array().empty()) problem(pointer + "/type", "needs a type, found []");
    }
    return types;
  }

  StateId typed(const json::object& object, const std::string& pointer, StateId from) {
    const unsigned types = types_asked(object, pointer);
    check_all(object, pointer, types);
    const StateId end = net_.state();
    if ((types & kNull) != 0 && parts_->spelling().nulls) net_.literal(from, "null", end);
    if ((types & kBoolean) != 0) {
      net_.literal(from, "true", end);
      net_.literal(from, "false", end);
    }
    if ((types & (kNumber | kInteger)) != 0) net_.jump(number(object, pointer, (types & kNumber) == 0, from), end);
    if ((types & kString) != 0) net_.jump(string(object, pointer, from), end);
    if ((types & kArray) != 0) net_.jump(array(object, pointer, from), end);
    if ((types & kObject) != 0) net_.jump(this->object(object, pointer, from), end);
    return end;
  }

  // Keywords of other types than those that may come say nothing; what is wrong in them is a problem all the same.
  void check_all(const json::object& object, const std::string& pointer, unsigned types) {
    const StateId nowhere = net_.state();
    if ((types & (kNumber | kInteger)) == 0 && speaks_of(object, kNumber)) number(object, pointer, false, nowhere);
    if ((types & kString) == 0 && speaks_of(object, kString)) string(object, pointer, nowhere);
    if ((types & kArray) == 0 && speaks_of(object, kArray)) array(object, pointer, nowhere);
    if ((types & kObject) == 0 && speaks_of(object, kObject)) this->object(object, pointer, nowhere);
  }

  static bool speaks_of(const json::object& object, unsigned types) {
    return std::any_of(object.begin(), object.end(),
                       [&](const auto& m) { return (types_of_keyword(view(m.key())) & types) != 0; });
  }

  StateId number(const json::object& object, const std::string& pointer, bool integer, StateId from) {
    NumberRange range;
    range.integer = integer;
    for (const char* name : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const json::value* v = object.if_contains(name);
      if (v == nullptr) continue;
      if (!v->is_number()) {
        problem(pointer_with(pointer, name), fmt::format("needs a number, found {}", shown(*v)));
        continue;
      }
      const bool exclusive = std::string_view(name).starts_with("ex");
      const bool is_least = std::string_view(name).ends_with("inimum");
      tighten(is_least ? range.least : range.most, {decimal_of(*v), exclusive}, is_least);
    }
    if (const json::value* v = object.if_contains("multipleOf")) {
      if (!integer || !v->is_number() || v->to_number<double>() != 1)
        problem(pointer + "/multipleOf", "multiples are not served, but of 1 for an integer");
    }
    if (!range.least && !range.most) return parts_->number(from, integer);
    if (range.least && range.most && order(range.least->value, range.most->value) > 0) {
      problem(pointer + (object.contains("minimum") ? "/minimum" : "/exclusiveMinimum"),
              "is above the maximum: no number satisfies it");
      return from;
    }
    try {
      return parts_->number(from, range);
    } catch (const Error& error) {
      problem(pointer, error.what());
      return from;
    }
  }

  static int order(const Decimal& a, const Decimal& b) {
    if (a.negative != b.negative) return a.negative ? -1 : 1;
    const auto key = [](const Decimal& d) { return std::pair(d.whole.size(), d.whole + '.' + d.fraction); };
    const int sign = a.negative ? -1 : 1;
    return key(a) == key(b) ? 0 : key(a) < key(b) ? -sign : sign;
  }

  static void tighten(std::optional<Bound>& bound, Bound other, bool is_least) {
    if (bound) {
      const int o = order(other.value, bound->value) * (is_least ? 1 : -1);
      if (o < 0 || (o == 0 && !other.exclusive)) return;
    }
    bound = std::move(other);
  }

  // A count of at most 2^31; nothing where it is left out.
  std::optional<int64_t> count(const json::object& object, const std::string& pointer, const char* name) {
    const json::value* v = object.if_contains(name);
    if (v == nullptr) return std::nullopt;
    const double x = v->is_number() ? v->to_number<double>() : -1;
    if (!(x >= 0 && x <= 2147483648.0) || x != std::floor(x)) {
      problem(pointer_with(pointer, name), fmt::format("needs a count of at most 2^31, found {}", shown(*v)));
      return std::nullopt;
    }
    return static_cast<int64_t>(x);
  }

  StateId string(const json::object& object, const std::string& pointer, StateId from) {
    const int64_t least = count(object, pointer, "minLength").value_or(0);
    const std::optional<int64_t> most = count(object, pointer, "maxLength");
    if (most && *most < least) {
      problem(pointer + "/maxLength", "is below minLength: no string satisfies it");
      return from;
    }
    // Each character is a state: said before they are made.
    if (least > kStatesMax || most.value_or(0) > kStatesMax) {
      problem(pointer + (least > kStatesMax ? "/minLength" : "/maxLength"),
              fmt::format("needs more than {} states", kStatesMax));
      return from;
    }
    const json::value *pattern = object.if_contains("pattern"), *format = object.if_contains("format");
    if (pattern != nullptr && format != nullptr) problem(pointer + "/format", "is not served beside pattern");
    const json::value* named = pattern != nullptr ? pattern : format;
    if (named == nullptr) return parts_->string(from, least, most);
    const std::string at = pointer + (pattern != nullptr ? "/pattern" : "/format");
    if (!named->is_string()) {
      problem(at, fmt::format("needs a string, found {}", shown(*named)));
      return from;
    }
    std::string_view text = view(named->get_string());
    if (pattern == nullptr) {
      text = format_pattern(text);
      if (text.empty())
        problem(at,
                fmt::format("{} is not served: date, time, date-time, uuid, ipv4, ipv6 and email are", shown(*named)));
    }
    net_.check_time();
    try {
      return pattern_string(net_, *parts_, from, parse_pattern(text), least, most);
    } catch (const Error& error) {
      problem(at, error.what());
      return from;
    }
  }

  struct Items {
    std::vector<const json::value*> prefix;
    const json::value* rest = nullptr;  // null: any value
    bool has_rest = true;
    int64_t least = 0;
    std::optional<int64_t> most;
  };

  bool read_items(const json::object& object, const std::string& pointer, Items& items) {
    items.least = count(object, pointer, "minItems").value_or(0);
    items.most = count(object, pointer, "maxItems");
    if (const json::value* v = object.if_contains("prefixItems")) {
      if (!v->is_array())
        return problem(pointer + "/prefixItems", fmt::format("needs an array of schemas, found {}", shown(*v))), false;
      for (const json::value& item : v->get_array()) items.prefix.push_back(&item);
    }
    items.rest = object.if_contains("items");
    if (items.rest != nullptr && items.rest->is_array())
      return problem(pointer + "/items", "needs a schema: a list of them is prefixItems"), false;
    items.has_rest = items.rest == nullptr || !items.rest->is_bool() || items.rest->get_bool();
    const auto n_prefix = static_cast<int64_t>(items.prefix.size());
    if (!items.has_rest) items.most = std::min(items.most.value_or(n_prefix), n_prefix);
    if (items.most && *items.most < items.least)
      return problem(pointer + "/minItems", "is more than there may be: no array satisfies it"), false;
    if (std::max(items.least, items.most.value_or(0)) > kStatesMax) {
      return problem(pointer + (items.least > kStatesMax ? "/minItems" : "/maxItems"),
                     fmt::format("needs more than {} states", kStatesMax)),
             false;
    }
    return true;
  }

  StateId array(const json::object& object, const std::string& pointer, StateId from) {
    Items items;
    if (!read_items(object, pointer, items)) return from;
    const auto n_prefix = static_cast<int64_t>(items.prefix.size());
    const StateId end = net_.state();
    StateId open = net_.literal(from, "[");
    if (items.least == 0) {
      net_.literal(open, "]", end);
      const StateId first = net_.state();  // where no ] may stand: a loop leads here from behind a comma
      net_.jump(open, first);
      open = first;
    }
    RuleId rest = -1;
    if (items.rest != nullptr && items.has_rest) rest = rule_for(*items.rest, pointer + "/items");
    for (int64_t i = 0; !items.most || i < *items.most; ++i) {
      StateId item = open;
      if (i < n_prefix) {
        item = compile(*items.prefix[static_cast<size_t>(i)], pointer_with(pointer + "/prefixItems", std::to_string(i)),
                       open);
      } else {
        item = rest < 0 ? parts_->any(open) : net_.call(open, rest);
      }
      if (i + 1 >= items.least) net_.literal(item, "]", end);
      if (!items.most && i >= n_prefix && i + 1 >= items.least) {
        net_.literal(item, parts_->spelling().comma, open);
        break;
      }
      if (!items.most || i + 1 < *items.most) open = net_.literal(item, parts_->spelling().comma);
    }
    return end;
  }

  struct Member {
    std::string name;
    const json::value* schema = nullptr;  // null: any value
    std::string pointer;
    bool required = false;
  };

  std::vector<Member> members(const json::object& object, const std::string& pointer, const json::value* more) {
    std::vector<Member> list;
    std::map<std::string, size_t, std::less<>> at;
    if (const json::value* v = object.if_contains("properties")) {
      if (!v->is_object()) {
        problem(pointer + "/properties", fmt::format("needs an object of schemas, found {}", shown(*v)));
        return list;
      }
      for (const auto& [key, schema] : v->get_object()) {
        at.emplace(view(key), list.size());
        list.push_back({std::string(view(key)), &schema, pointer_with(pointer + "/properties", view(key)), false});
      }
    }
    const json::value* required = object.if_contains("required");
    if (required == nullptr) return list;
    if (!required->is_array()) {
      problem(pointer + "/required", fmt::format("needs an array of names, found {}", shown(*required)));
      return list;
    }
    for (const json::value& name : required->get_array()) {
      if (!name.is_string()) {
        problem(pointer + "/required", fmt::format("needs an array of names, found {}", shown(name)));
        continue;
      }
      const auto [it, is_new] = at.try_emplace(std::string(view(name.get_string())), list.size());
      if (is_new) {
        if (more != nullptr && more->is_bool() && !more->get_bool())
          problem(pointer + "/required", fmt::format("{} is no member that may be there", shown(name)));
        list.push_back({it->first, more, pointer + "/additionalProperties", true});
      }
      list[it->second].required = true;
    }
    return list;
  }

  StateId object(const json::object& object, const std::string& pointer, StateId from) {
    const json::value* more = object.if_contains("additionalProperties");
    if (more == nullptr && !object.contains("properties") && !object.contains("required"))
      return parts_->any_object(from);
    return members_of(object, pointer, from);
  }

  // What stands before a member's value, and what spells the value then: in one way, or in two where a mark tells texts
  // from other values and there may be both.
  using Way = std::pair<std::string, JsonParts*>;
  std::vector<Way> ways_of(const Member& m) {
    if (marks_ == nullptr) {
      if (parts_->spelling().bare_names && !is_bare_name(m.name)) problem(m.pointer, name_refusal(m.name));
      return {{parts_->spelled_name(m.name), parts_}};
    }
    std::vector<Way> ways;
    for (const auto& [middle, parts] : middles_of(m.schema)) {
      if (m.name.empty() || (m.name + middle).find(middle) != m.name.size()) problem(m.pointer, name_refusal(m.name));
      ways.emplace_back(marks_->open + m.name + middle, parts);
    }
    return ways;
  }

  std::vector<Way> middles_of(const json::value* schema) const {
    const bool by_mark = marks_->middle != marks_->text_middle;
    const bool is_text = schema != nullptr && told_as_text(document_, *schema, true);
    if (!is_text) return {{marks_->middle, parts_}};
    if (!by_mark || told_as_text(document_, *schema, false)) return {{marks_->text_middle, marks_->texts}};
    return {{marks_->text_middle, marks_->texts}, {marks_->middle, parts_}};
  }

  static std::string name_refusal(const std::string& name) {
    return fmt::format("{} cannot be written as a name in the calls of this model: needs letters, digits, _, - and .",
                       shown(json::value(name)));
  }

  StateId value_of(const json::value* schema, const std::string& pointer, StateId from, JsonParts* parts,
                   bool as_rule) {
    JsonParts* const parts_of_object = std::exchange(parts_, parts);
    const MemberMarks* const marks = std::exchange(marks_, nullptr);  // of the outermost object alone
    StateId end = from;
    if (schema == nullptr || (as_rule && schema->is_bool())) {
      end = parts_->any(from);
    } else {
      end = as_rule ? net_.call(from, rule_for(*schema, pointer)) : compile(*schema, pointer, from);
    }
    parts_ = parts_of_object;
    marks_ = marks;
    return marks_ == nullptr ? end : net_.literal(end, marks_->close + marks_->behind);
  }

  StateId members_of(const json::object& object, const std::string& pointer, StateId from) {
    static const json::value kAny = true;
    const json::value* more = object.if_contains("additionalProperties");
    if (more == nullptr && !object.contains("properties") && !object.contains("required")) more = &kAny;
    std::vector<Member> list = members(object, pointer, more);
    std::vector<std::string> names;
    for (const Member& m : list) names.push_back(m.name);
    std::erase_if(list, [](const Member& m) {
      return !m.required && m.schema != nullptr && m.schema->is_bool() && !m.schema->get_bool();
    });
    const bool has_more = more != nullptr && !(more->is_bool() && !more->get_bool());
    const std::string begin = marks_ ? marks_->begin : "{", end_text = marks_ ? marks_->end : "}";
    const std::string between = marks_ ? marks_->between : parts_->spelling().comma;
    size_t n_needed = 0;  // no } before so many of the list are past
    for (size_t i = 0; i < list.size(); ++i) n_needed = list[i].required ? i + 1 : n_needed;
    const StateId end = net_.state();
    StateId name = net_.literal(from, begin);  // where the name of member i or a later one stands
    if (n_needed == 0) net_.literal(name, end_text, end);
    const StateId first = net_.state();
    net_.jump(name, first);
    name = first;
    for (size_t i = 0; i < list.size(); ++i) {
      const Member& m = list[i];
      const StateId value = net_.state();
      for (const auto& [head, parts] : ways_of(m))
        net_.jump(value_of(m.schema, m.pointer, net_.literal(name, head), parts, false), value);
      const StateId next = net_.state();
      if (i + 1 >= n_needed) net_.literal(value, end_text, end);
      net_.literal(value, between, next);
      if (!m.required) net_.jump(name, next);
      name = next;
    }
    if (has_more) other_members(*more, pointer + "/additionalProperties", names, name, end);
    return end;
  }

  // Members whose names the schema does not have, from where a name may stand.
  void other_members(const json::value& more, const std::string& pointer, const std::vector<std::string>& names,
                     StateId name, StateId end) {
    const std::vector<Way> ways = marks_ ? middles_of(&more) : std::vector<Way>{{parts_->spelling().colon, parts_}};
    const StateId behind_name =
        marks_ ? marks_->texts->other_name(net_.literal(name, marks_->open), names) : parts_->other_name(name, names);
    const StateId value = net_.state();
    for (const auto& [middle, parts] : ways)
      net_.jump(value_of(&more, pointer, net_.literal(behind_name, middle), parts, true), value);
    net_.literal(value, marks_ ? marks_->end : "}", end);
    net_.literal(value, marks_ ? marks_->between : parts_->spelling().comma, name);
  }

  const json::value& document_;
  std::vector<SchemaProblem>& problems_;
  NetworkBuilder& net_;
  JsonParts* parts_;                    // of what is compiled now
  const MemberMarks* marks_ = nullptr;  // of the outermost object
  std::map<std::pair<std::string, JsonParts*>, RuleId> rules_;
  std::vector<Open> open_;
};

}  // namespace

RuleId add_schema(NetworkBuilder& net, JsonParts& parts, const json::value& schema,
                  std::vector<SchemaProblem>& problems) {
  return Compiler(net, parts, schema, problems).run();
}

RuleId add_members(NetworkBuilder& net, JsonParts& parts, const MemberMarks& marks, const json::value& schema,
                   std::vector<SchemaProblem>& problems) {
  return Compiler(net, parts, schema, problems).run(marks);
}

Network schema_network(const json::value& schema, std::vector<SchemaProblem>& problems) {
  NetworkBuilder net;
  JsonParts parts(net);
  const RuleId root = add_schema(net, parts, schema, problems);
  if (!problems.empty()) return {};
  return net.finish(root);
}

Network any_object_network() {
  NetworkBuilder net;
  JsonParts parts(net);
  const RuleId root = net.rule("any object");
  net.jump(parts.any_object(net.begin(root), kAnyDepth - 1), net.end(root));
  return net.finish(root);
}

}  // namespace assay::constraint
