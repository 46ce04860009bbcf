// See schema.h. A schema calls itself as deep as its document is nested, which the reader limits; what a $ref names
// becomes a rule, compiled when all else is.
#include "constraint/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "constraint/json_parts.h"
#include "constraint/schema_keywords.h"
#include "constraint/schema_reader.h"
#include "constraint/schema_values.h"

namespace assay::constraint {
namespace json = boost::json;
namespace {

// How an object is written now.
struct Writing {
  JsonParts* parts = nullptr;
  const MemberMarks* marks = nullptr;  // null: as JSON
};
using Way = std::pair<std::string, JsonParts*>;

std::string name_refusal(const std::string& name) {
  return fmt::format("{} cannot be written as a name in the calls of this model: needs letters, digits, _, - and .",
                     shown(json::value(name)));
}

std::vector<Way> middles_of(const Writing& w, const json::value& document, const json::value* schema) {
  const bool by_mark = w.marks->middle != w.marks->text_middle;
  const bool is_text = schema != nullptr && told_as_text(document, *schema, true);
  if (!is_text) return {{w.marks->middle, w.parts}};
  if (!by_mark || told_as_text(document, *schema, false)) return {{w.marks->text_middle, w.marks->texts}};
  return {{w.marks->text_middle, w.marks->texts}, {w.marks->middle, w.parts}};
}

// What stands before a member's value, and what spells the value then: in one way, or in two where a mark tells texts
// from other values and there may be both.
std::vector<Way> ways_of(const Writing& w, const SchemaReader& reader, const SchemaMember& m) {
  if (w.marks == nullptr) {
    if (w.parts->spelling().bare_names && !is_bare_name(m.name)) reader.problem(m.pointer, name_refusal(m.name));
    return {{w.parts->spelled_name(m.name), w.parts}};
  }
  std::vector<Way> ways;
  for (const auto& [middle, parts] : middles_of(w, reader.document(), m.schema)) {
    if (m.name.empty() || (m.name + middle).find(middle) != m.name.size())
      reader.problem(m.pointer, name_refusal(m.name));
    ways.emplace_back(w.marks->open + m.name + middle, parts);
  }
  return ways;
}

// Whether the schema has keywords of these types.
bool speaks_of(const json::object& object, unsigned types) {
  return std::any_of(object.begin(), object.end(),
                     [&](const auto& m) { return (types_of_keyword(view(m.key())) & types) != 0; });
}

// A schema that has a rule and is not compiled yet.
struct Uncompiled {
  const json::value* schema;
  std::string pointer;
  RuleId rule;
  JsonParts* parts;
};

class Compiler {
 public:
  Compiler(NetworkBuilder& net, JsonParts& parts, const json::value& document, std::vector<SchemaProblem>& problems)
      : document_(document), reader_(document, problems), net_(net), parts_(&parts) {}

  RuleId run() {
    const RuleId root = rule_for(document_, "");
    finish();
    return root;
  }

  RuleId run(const MemberMarks& marks) {
    marks_ = &marks;
    const RuleId root = net_.rule("the arguments");
    const json::object* object = reader_.arguments();
    if (object == nullptr) return root;
    check_all(*object, "", kObject);
    net_.jump(members_of(*object, "", net_.begin(root)), net_.end(root));
    marks_ = nullptr;
    finish();
    return root;
  }

 private:
  void finish() {
    JsonParts* const parts = parts_;
    while (!open_.empty()) {
      const Uncompiled o = open_.back();
      open_.pop_back();
      parts_ = o.parts;
      net_.jump(compile(*o.schema, o.pointer, net_.begin(o.rule)), net_.end(o.rule));
    }
    parts_ = parts;
  }

  ValueSchema value(const json::object& object, const std::string& pointer) {
    return {net_, *parts_, reader_, object, pointer};
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
      if (!schema.get_bool()) reader_.problem(pointer, "false: no value satisfies it");
      return parts_->any(from);
    }
    if (!schema.is_object()) {
      reader_.problem(pointer, fmt::format("a schema is an object or a boolean, found {}", shown(schema)));
      return from;
    }
    const json::object& object = schema.get_object();
    reader_.check_keywords(object, pointer);
    if (const json::value* ref = object.if_contains("$ref")) return reference(object, *ref, pointer, from);
    if (object.contains("const") || object.contains("enum")) return listed_value(value(object, pointer), from);
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      if (object.contains(name)) return combined(object, name, pointer, from);
    }
    return typed(object, pointer, from);
  }

  StateId reference(const json::object& object, const json::value& ref, const std::string& pointer, StateId from) {
    reader_.refuse_beside(object, "$ref", "", pointer);
    const std::string at = pointer + "/$ref";
    if (!ref.is_string()) {
      reader_.problem(at, fmt::format("needs a string, found {}", shown(ref)));
      return from;
    }
    std::string target_pointer;
    const json::value* target = find_reference(document_, view(ref.get_string()), target_pointer);
    if (target == nullptr) {
      reader_.problem(at, fmt::format("needs a JSON pointer into this document (\"#/...\"), found {}", shown(ref)));
      return from;
    }
    return net_.call(from, rule_for(*target, target_pointer));
  }

  StateId combined(const json::object& object, std::string_view name, const std::string& pointer, StateId from) {
    reader_.refuse_beside(object, name, "", pointer);
    const json::value& list = object.at(json::string_view(name.data(), name.size()));
    const std::string at = pointer_with(pointer, name);
    if (!list.is_array() || list.get_array().empty()) {
      reader_.problem(at, fmt::format("needs an array of schemas, found {}", shown(list)));
      return from;
    }
    const json::array& schemas = list.get_array();
    if (name == "allOf" && schemas.size() > 1)
      reader_.problem(at, "is served with one schema: several at a time are not");
    if (name == "oneOf") {
      net_.check_time();
      reader_.require_apart(schemas, at);
    }
    const StateId end = net_.state();
    for (size_t i = 0; i < schemas.size(); ++i) {
      if (schemas[i].is_bool() && !schemas[i].get_bool() && schemas.size() > 1) continue;
      net_.jump(compile(schemas[i], pointer_with(at, std::to_string(i)), from), end);
    }
    return end;
  }

  StateId typed(const json::object& object, const std::string& pointer, StateId from) {
    const unsigned types = reader_.types_asked(object, pointer);
    check_all(object, pointer, types);
    const StateId end = net_.state();
    if ((types & kNull) != 0 && parts_->spelling().nulls) net_.literal(from, "null", end);
    if ((types & kBoolean) != 0) {
      net_.literal(from, "true", end);
      net_.literal(from, "false", end);
    }
    if ((types & (kNumber | kInteger)) != 0)
      net_.jump(number_value(value(object, pointer), (types & kNumber) == 0, from), end);
    if ((types & kString) != 0) net_.jump(string_value(value(object, pointer), from), end);
    if ((types & kArray) != 0) net_.jump(array(object, pointer, from), end);
    if ((types & kObject) != 0) net_.jump(this->object(object, pointer, from), end);
    return end;
  }

  // Keywords of other types than those that may come say nothing; what is wrong in them is a problem all the same.
  void check_all(const json::object& object, const std::string& pointer, unsigned types) {
    const StateId nowhere = net_.state();
    if ((types & (kNumber | kInteger)) == 0 && speaks_of(object, kNumber))
      number_value(value(object, pointer), false, nowhere);
    if ((types & kString) == 0 && speaks_of(object, kString)) string_value(value(object, pointer), nowhere);
    if ((types & kArray) == 0 && speaks_of(object, kArray)) array(object, pointer, nowhere);
    if ((types & kObject) == 0 && speaks_of(object, kObject)) this->object(object, pointer, nowhere);
  }

  StateId array(const json::object& object, const std::string& pointer, StateId from) {
    const std::optional<SchemaItems> read = reader_.items(object, pointer);
    if (!read) return from;
    const SchemaItems& items = *read;
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

  StateId object(const json::object& object, const std::string& pointer, StateId from) {
    const json::value* more = object.if_contains("additionalProperties");
    if (more == nullptr && !object.contains("properties") && !object.contains("required"))
      return parts_->any_object(from);
    return members_of(object, pointer, from);
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
    std::vector<SchemaMember> list = reader_.members(object, pointer, more);
    std::vector<std::string> names;
    for (const SchemaMember& m : list) names.push_back(m.name);
    std::erase_if(list, [](const SchemaMember& m) {
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
      const SchemaMember& m = list[i];
      const StateId value = net_.state();
      for (const auto& [head, parts] : ways_of({parts_, marks_}, reader_, m))
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
    const std::vector<Way> ways =
        marks_ ? middles_of({parts_, marks_}, document_, &more) : std::vector<Way>{{parts_->spelling().colon, parts_}};
    const StateId behind_name =
        marks_ ? marks_->texts->other_name(net_.literal(name, marks_->open), names) : parts_->other_name(name, names);
    const StateId value = net_.state();
    for (const auto& [middle, parts] : ways)
      net_.jump(value_of(&more, pointer, net_.literal(behind_name, middle), parts, true), value);
    net_.literal(value, marks_ ? marks_->end : "}", end);
    net_.literal(value, marks_ ? marks_->between : parts_->spelling().comma, name);
  }

  const json::value& document_;
  const SchemaReader reader_;
  NetworkBuilder& net_;
  JsonParts* parts_;                    // of what is compiled now
  const MemberMarks* marks_ = nullptr;  // of the outermost object
  std::map<std::pair<std::string, JsonParts*>, RuleId> rules_;
  std::vector<Uncompiled> open_;
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
