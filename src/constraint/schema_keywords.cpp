// See schema_keywords.h.
#include "constraint/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace assay::constraint {
namespace json = boost::json;
namespace {

constexpr int kReferencesMax = 64;  // followed one after the other

const std::map<std::string_view, unsigned>& enforced() {
  static const std::map<std::string_view, unsigned> kEnforced = {
      {"type", 0},
      {"enum", 0},
      {"const", 0},
      {"anyOf", 0},
      {"oneOf", 0},
      {"allOf", 0},
      {"$ref", 0},
      {"properties", kObject},
      {"required", kObject},
      {"additionalProperties", kObject},
      {"items", kArray},
      {"prefixItems", kArray},
      {"minItems", kArray},
      {"maxItems", kArray},
      {"minLength", kString},
      {"maxLength", kString},
      {"pattern", kString},
      {"format", kString},
      {"minimum", kNumber},
      {"maximum", kNumber},
      {"exclusiveMinimum", kNumber},
      {"exclusiveMaximum", kNumber},
      {"multipleOf", kNumber},
  };
  return kEnforced;
}

const std::map<std::string_view, std::string_view>& refusals() {
  static const std::map<std::string_view, std::string_view> kRefusals = {
      {"not", "what a value is not cannot be enforced while it is written"},
      {"if", "conditions are not served: anyOf says the same"},
      {"then", "conditions are not served: anyOf says the same"},
      {"else", "conditions are not served: anyOf says the same"},
      {"uniqueItems", "that items differ is not enforced"},
      {"contains", "that one item of many fits is not enforced"},
      {"minContains", "that one item of many fits is not enforced"},
      {"maxContains", "that one item of many fits is not enforced"},
      {"patternProperties", "members by a pattern of their names are not served"},
      {"propertyNames", "rules for names are not served"},
      {"minProperties", "the number of members is not enforced"},
      {"maxProperties", "the number of members is not enforced"},
      {"dependencies", "members that depend on others are not served: anyOf says the same"},
      {"dependentRequired", "members that depend on others are not served: anyOf says the same"},
      {"dependentSchemas", "members that depend on others are not served: anyOf says the same"},
      {"unevaluatedProperties", "additionalProperties is served"},
      {"unevaluatedItems", "items is served"},
      {"additionalItems", "items behind prefixItems says the same"},
      {"$anchor", "references are JSON pointers here"},
      {"$dynamicRef", "references are JSON pointers here"},
      {"$dynamicAnchor", "references are JSON pointers here"},
      {"$recursiveRef", "references are JSON pointers here"},
      {"$recursiveAnchor", "references are JSON pointers here"},
      {"id", "it is $id since draft 6"},
      {"nullable", "it is OpenAPI's: a type of \"null\" says the same"},
      {"contentEncoding", "what a text encodes is not enforced"},
      {"contentMediaType", "what a text encodes is not enforced"},
      {"contentSchema", "what a text encodes is not enforced"},
  };
  return kRefusals;
}

double number(const json::value& v) {
  return v.is_double()  ? v.get_double()
         : v.is_int64() ? static_cast<double>(v.get_int64())
                        : static_cast<double>(v.get_uint64());
}
bool is_number(const json::value& v) { return v.is_double() || v.is_int64() || v.is_uint64(); }

const json::value* member(const json::value& schema, std::string_view name) {
  return schema.is_object() ? schema.get_object().if_contains(json::string_view(name.data(), name.size())) : nullptr;
}

// All values that may come; null: not told by a list.
std::optional<std::vector<const json::value*>> listed(const json::value& schema) {
  if (const json::value* v = member(schema, "const")) return {{v}};
  const json::value* v = member(schema, "enum");
  if (v == nullptr || !v->is_array()) return std::nullopt;
  std::vector<const json::value*> values;
  for (const json::value& item : v->get_array()) values.push_back(&item);
  return values;
}

unsigned types_allowed(const json::value& schema) {
  if (const auto values = listed(schema)) {
    unsigned types = 0;
    for (const json::value* v : *values) types |= type_of(*v) == kInteger ? kNumber : type_of(*v);
    return types;
  }
  const json::value* type = member(schema, "type");
  if (type == nullptr) return kAllTypes;
  unsigned types = 0;
  const auto add = [&](const json::value& v) {
    const auto one = v.is_string() ? type_named(view(v.get_string())) : std::nullopt;
    types |= !one ? kAllTypes : *one == kInteger ? unsigned{kNumber} : *one;
  };
  if (type->is_array()) {
    for (const json::value& v : type->get_array()) add(v);
  } else {
    add(*type);
  }
  return types;
}

bool lists_differ(const json::value& a, const json::value& b) {
  const auto of_a = listed(a), of_b = listed(b);
  if (!of_a || !of_b) return false;
  return std::none_of(of_a->begin(), of_a->end(), [&](const json::value* x) {
    return std::any_of(of_b->begin(), of_b->end(), [&](const json::value* y) { return same_value(*x, *y); });
  });
}

std::set<std::string_view> required_members(const json::value& schema) {
  std::set<std::string_view> names;
  const json::value* required = member(schema, "required");
  if (required == nullptr || !required->is_array()) return names;
  for (const json::value& v : required->get_array()) {
    if (v.is_string()) names.insert(view(v.get_string()));
  }
  return names;
}

}  // namespace

const json::value* resolved(const json::value& document, const json::value* schema) {
  for (int i = 0; i < kReferencesMax && schema != nullptr; ++i) {
    const json::value* ref = member(*schema, "$ref");
    if (ref == nullptr) return schema;
    std::string pointer;
    schema = ref->is_string() ? find_reference(document, view(ref->get_string()), pointer) : nullptr;
  }
  return nullptr;
}

unsigned possible_types(const json::value& document, const json::value& schema) {
  unsigned types = 0;
  std::vector<const json::value*> open = {&schema};
  std::set<const json::value*> seen;
  while (!open.empty() && types != kAllTypes) {
    const json::value* s = resolved(document, open.back());
    open.pop_back();
    if (s == nullptr) return kAllTypes;
    if (!seen.insert(s).second || (s->is_bool() && !s->get_bool())) continue;
    if (!s->is_object()) return kAllTypes;
    const json::value* list = nullptr;
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      if (list == nullptr) list = member(*s, name);
    }
    if (list != nullptr && list->is_array() && !listed(*s)) {
      for (const json::value& v : list->get_array()) open.push_back(&v);
      continue;
    }
    unsigned own = types_allowed(*s);
    if (const json::value* type = member(*s, "type"); type != nullptr && listed(*s)) {
      own &= types_allowed(json::object{{"type", *type}});
    } else if (type == nullptr && !listed(*s)) {
      unsigned spoken_of = 0;
      for (const auto& [key, value] : s->get_object()) spoken_of |= types_of_keyword(view(key));
      if (spoken_of != 0) own = spoken_of;
    }
    types |= own;
  }
  return types;
}

bool told_as_text(const json::value& document, const json::value& schema, bool null_too) {
  const unsigned types = possible_types(document, schema);
  return (types & kString) != 0 && (types & ~unsigned{null_too ? kString | kNull : kString}) == 0;
}

Keyword keyword_kind(std::string_view name) {
  static constexpr std::string_view kAnnotations[] = {"title",     "description", "default",    "examples",
                                                      "example",   "$comment",    "deprecated", "readOnly",
                                                      "writeOnly", "$schema",     "$defs",      "definitions"};
  if (name.starts_with("x-") ||
      std::find(std::begin(kAnnotations), std::end(kAnnotations), name) != std::end(kAnnotations))
    return Keyword::annotation;
  if (enforced().contains(name) || name == "$id") return Keyword::enforced;
  return refusals().contains(name) ? Keyword::refused : Keyword::unknown;
}

std::string_view refusal(std::string_view name) { return refusals().at(name); }

unsigned types_of_keyword(std::string_view name) {
  const auto it = enforced().find(name);
  return it == enforced().end() ? 0 : it->second;
}

std::optional<unsigned> type_named(std::string_view name) {
  static const std::map<std::string_view, unsigned> kNames = {
      {"null", kNull},     {"boolean", kBoolean}, {"object", kObject},  {"array", kArray},
      {"string", kString}, {"number", kNumber},   {"integer", kInteger}};
  const auto it = kNames.find(name);
  return it == kNames.end() ? std::nullopt : std::optional(it->second);
}

unsigned type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return kNull;
    case json::kind::bool_: return kBoolean;
    case json::kind::object: return kObject;
    case json::kind::array: return kArray;
    case json::kind::string: return kString;
    case json::kind::double_: return value.get_double() == std::floor(value.get_double()) ? kInteger : kNumber;
    default: return kInteger;
  }
}

bool same_value(const json::value& a, const json::value& b) {
  std::vector<std::pair<const json::value*, const json::value*>> open = {{&a, &b}};
  while (!open.empty()) {
    const auto [x, y] = open.back();
    open.pop_back();
    if (is_number(*x) && is_number(*y)) {
      if (x->kind() == y->kind() ? *x != *y : number(*x) != number(*y)) return false;
    } else if (x->kind() != y->kind()) {
      return false;
    } else if (x->is_array()) {
      if (x->get_array().size() != y->get_array().size()) return false;
      for (size_t i = 0; i < x->get_array().size(); ++i) open.emplace_back(&x->get_array()[i], &y->get_array()[i]);
    } else if (x->is_object()) {
      if (x->get_object().size() != y->get_object().size()) return false;
      for (const auto& [key, value] : x->get_object()) {
        const json::value* other = y->get_object().if_contains(key);
        if (other == nullptr) return false;
        open.emplace_back(&value, other);
      }
    } else if (*x != *y) {
      return false;
    }
  }
  return true;
}

std::string pointer_with(const std::string& pointer, std::string_view part) {
  std::string result = pointer + '/';
  for (const char c : part) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

const json::value* find_reference(const json::value& document, std::string_view reference, std::string& pointer) {
  if (!reference.starts_with('#')) return nullptr;
  pointer.clear();
  for (size_t i = 1; i < reference.size(); ++i) {  // a fragment of a URI: bytes may be written as %XX
    const auto digit = [&](size_t at) {
      const char c = at < reference.size() ? reference[at] : '?';
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    if (reference[i] != '%') {
      pointer += reference[i];
    } else if (digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      pointer += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
      i += 2;
    } else {
      return nullptr;
    }
  }
  if (!pointer.empty() && pointer[0] != '/') return nullptr;
  boost::system::error_code ec;
  const json::value* found = document.find_pointer(json::string_view(pointer.data(), pointer.size()), ec);
  return ec ? nullptr : found;
}

bool exclude_each_other(const json::value& document, const json::value& a, const json::value& b) {
  const json::value *x = resolved(document, &a), *y = resolved(document, &b);
  if (x == nullptr || y == nullptr) return false;
  if ((types_allowed(*x) & types_allowed(*y)) == 0 || lists_differ(*x, *y)) return true;
  if (types_allowed(*x) != kObject || types_allowed(*y) != kObject) return false;
  const json::value *of_x = member(*x, "properties"), *of_y = member(*y, "properties");
  if (of_x == nullptr || of_y == nullptr || !of_x->is_object()) return false;
  const std::set<std::string_view> by_x = required_members(*x), by_y = required_members(*y);
  for (const auto& [key, value] : of_x->get_object()) {
    const std::string_view name(key.data(), key.size());
    const json::value* other = member(*of_y, name);
    if (other == nullptr || !by_x.contains(name) || !by_y.contains(name)) continue;
    const json::value *p = resolved(document, &value), *q = resolved(document, other);
    if (p != nullptr && q != nullptr && ((types_allowed(*p) & types_allowed(*q)) == 0 || lists_differ(*p, *q)))
      return true;
  }
  return false;
}

}  // namespace assay::constraint
