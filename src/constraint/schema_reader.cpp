// See schema_reader.h.
#include "constraint/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "constraint/network.h"
#include "constraint/schema_keywords.h"

namespace assay::constraint {
namespace json = boost::json;

void SchemaReader::problem(const std::string& pointer, std::string message) const {
  if (problems_.size() < 1000) problems_.push_back({pointer, std::move(message)});
}

const json::object* SchemaReader::arguments() const {
  const json::value* schema = resolved(document_, &document_);
  const json::object* object = schema != nullptr ? schema->if_object() : nullptr;
  if (object == nullptr || object->contains("anyOf") || object->contains("oneOf") || object->contains("allOf") ||
      object->contains("enum") || object->contains("const")) {
    problem("", "needs properties: calls of this model name one argument after the other");
    return nullptr;
  }
  if (&document_ != schema) refuse_beside(document_.get_object(), "$ref", "", "");
  check_keywords(*object, "");
  types_asked(*object, "");
  return object;
}

void SchemaReader::check_keywords(const json::object& object, const std::string& pointer) const {
  for (const auto& [key, value] : object) {
    const std::string_view name = view(key);
    const std::string at = pointer_with(pointer, name);
    switch (keyword_kind(name)) {
      case Keyword::annotation: break;
      case Keyword::enforced:
        if (name == "$id" && !pointer.empty())
          problem(at, "is served at the root alone: references are JSON pointers of the one document");
        break;
      case Keyword::refused:
        if (name == "uniqueItems" && value.is_bool() && !value.get_bool()) break;
        if ((name == "minProperties" || name == "minContains") && value.is_int64() && value.get_int64() == 0) break;
        problem(at, std::string(refusal(name)));
        break;
      case Keyword::unknown: problem(at, "is no keyword that is known: nothing is left out in silence"); break;
    }
  }
}

void SchemaReader::refuse_beside(const json::object& object, std::string_view except, std::string_view also,
                                 const std::string& pointer) const {
  for (const auto& [key, value] : object) {
    const std::string_view name = view(key);
    if (name == except || name == also || name == "$id" || keyword_kind(name) != Keyword::enforced) continue;
    problem(pointer_with(pointer, name), fmt::format("is not served beside {}", except));
  }
}

void SchemaReader::require_apart(const json::array& schemas, const std::string& pointer) const {
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

unsigned SchemaReader::types_asked(const json::object& object, const std::string& pointer) const {
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

std::optional<int64_t> SchemaReader::count(const json::object& object, const std::string& pointer,
                                           const char* name) const {
  const json::value* v = object.if_contains(name);
  if (v == nullptr) return std::nullopt;
  const double x = v->is_number() ? v->to_number<double>() : -1;
  if (!(x >= 0 && x <= 2147483648.0) || x != std::floor(x)) {
    problem(pointer_with(pointer, name), fmt::format("needs a count of at most 2^31, found {}", shown(*v)));
    return std::nullopt;
  }
  return static_cast<int64_t>(x);
}

std::optional<SchemaItems> SchemaReader::items(const json::object& object, const std::string& pointer) const {
  SchemaItems items;
  items.least = count(object, pointer, "minItems").value_or(0);
  items.most = count(object, pointer, "maxItems");
  if (const json::value* v = object.if_contains("prefixItems")) {
    if (!v->is_array())
      return problem(pointer + "/prefixItems", fmt::format("needs an array of schemas, found {}", shown(*v))),
             std::nullopt;
    for (const json::value& item : v->get_array()) items.prefix.push_back(&item);
  }
  items.rest = object.if_contains("items");
  if (items.rest != nullptr && items.rest->is_array())
    return problem(pointer + "/items", "needs a schema: a list of them is prefixItems"), std::nullopt;
  items.has_rest = items.rest == nullptr || !items.rest->is_bool() || items.rest->get_bool();
  const auto n_prefix = static_cast<int64_t>(items.prefix.size());
  if (!items.has_rest) items.most = std::min(items.most.value_or(n_prefix), n_prefix);
  if (items.most && *items.most < items.least)
    return problem(pointer + "/minItems", "is more than there may be: no array satisfies it"), std::nullopt;
  if (std::max(items.least, items.most.value_or(0)) > kStatesMax) {
    return problem(pointer + (items.least > kStatesMax ? "/minItems" : "/maxItems"),
                   fmt::format("needs more than {} states", kStatesMax)),
           std::nullopt;
  }
  return items;
}

std::vector<SchemaMember> SchemaReader::members(const json::object& object, const std::string& pointer,
                                                const json::value* more) const {
  std::vector<SchemaMember> list;
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

}  // namespace assay::constraint
