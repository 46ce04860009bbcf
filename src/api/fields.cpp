// Checks a body against the table of fields.
#include "api/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/error.h"
#include "api/json_text.h"
#include "json/shown.h"

namespace assay::api {

namespace json = boost::json;

namespace {

const Field* find_field(std::string_view path, Where where) {
  const auto all = fields();
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const Field& f) { return (f.where & where) != 0 && f.path == path; });
  return it == all.end() ? nullptr : &*it;
}

// The row of a member by the path of its object; "" is the body.
const Field* find_member(const std::string& object, std::string_view name, Where where) {
  const std::string prefix = object.empty() ? object : object + ".";
  const Field* field = find_field(prefix + std::string(name), where);
  return field != nullptr || object.empty() ? field : find_field(prefix + "*", where);
}

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const size_t end = std::min(list.find('|'), list.size());
    parts.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return parts;
}

std::string joined(const std::vector<std::string_view>& parts) { return fmt::format("{}", fmt::join(parts, ", ")); }

bool is_integer(const json::value& v) {
  if (v.is_int64() || v.is_uint64()) return true;
  const double* d = v.if_double();
  return d != nullptr && std::trunc(*d) == *d && std::abs(*d) < 0x1p53;
}

unsigned types_of(const json::value& v) {
  switch (v.kind()) {
    case json::kind::bool_: return kBoolean;
    case json::kind::string: return kString;
    case json::kind::array: return kArray;
    case json::kind::object: return kObject;
    case json::kind::null: return 0;
    default: return is_integer(v) ? kInteger | kNumber : unsigned{kNumber};
  }
}

std::string type_names(unsigned types) {
  std::vector<std::string_view> names;
  for (const auto& [type, name] : {std::pair(kBoolean, "a boolean"),
                                   {kInteger, "an integer"},
                                   {kNumber, "a number"},
                                   {kString, "a string"},
                                   {kArray, "an array"},
                                   {kObject, "an object"}}) {
    if (types & type) names.emplace_back(name);
  }
  return fmt::format("{}", fmt::join(names, " or "));
}

using json_text::shown;

class Check {
 public:
  Check(Where where, bool lenient, std::vector<std::string>& ignored, const RequestLimits& limits)
      : where_(where), lenient_(lenient), ignored_(ignored), limits_(limits) {}

  // The depth of a body is limited where it is read.
  void members(json::object& object, const std::string& path, const std::string& name) {
    std::vector<std::string> unknown;
    for (auto& [key, value] : object) {
      const std::string key_name(key);
      const std::string member_name = name.empty() ? key_name : name + "." + key_name;
      const Field* field = find_member(path, key_name, where_);
      if (field == nullptr) {
        if (!lenient_)
          throw ApiError(400, fmt::format("there is no field {}", member_name), member_name, "unknown_parameter");
        unknown.push_back(key_name);
        ignored_.push_back(member_name);
        continue;
      }
      if (field->path.ends_with(".*")) id_name(key_name, member_name);
      check(*field, value, member_name);
    }
    for (const std::string& key : unknown) object.erase(key);
    require(object, path, name);
  }

 private:
  [[noreturn]] static void refuse(const std::string& name, const std::string& what) {
    throw ApiError(400, fmt::format("{}: {}", name, what), name, "invalid_value");
  }

  void id_name(const std::string& key, const std::string& name) {
    const bool digits = !key.empty() && key.size() <= 9 &&
                        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) refuse(name, "needs a token id as its name");
  }

  void require(const json::object& object, const std::string& path, const std::string& name) {
    for (const Field& f : fields()) {
      if (!f.required || (f.where & where_) == 0) continue;
      const size_t dot = f.path.rfind('.');
      const std::string_view parent = dot == std::string_view::npos ? std::string_view() : f.path.substr(0, dot);
      if (parent != path) continue;
      const std::string_view key = dot == std::string_view::npos ? f.path : f.path.substr(dot + 1);
      const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
      if (value != nullptr && !value->is_null()) continue;
      const std::string missing = name.empty() ? std::string(key) : fmt::format("{}.{}", name, key);
      throw ApiError(400, fmt::format("{} is missing: needs {}", missing, type_names(f.types)), missing,
                     "missing_required_parameter");
    }
  }

  void check(const Field& f, json::value& v, const std::string& name) {
    if (v.is_null()) return;  // as if it were not there
    if (!f.refused.empty()) {
      const auto neutral = parts_of(f.neutral);
      const auto same = [&](std::string_view text) {
        return json::parse(json::string_view(text.data(), text.size())) == v;
      };
      if (std::any_of(neutral.begin(), neutral.end(), same)) return;
      throw ApiError(400, fmt::format("{} {} is refused: {}", name, shown(v), f.refused), name,
                     "unsupported_parameter");
    }
    if ((types_of(v) & f.types) == 0) refuse(name, fmt::format("needs {}, found {}", type_names(f.types), shown(v)));
    if (v.is_string()) {
      check_string(f, v, name);
    } else if (v.is_array()) {
      check_size(f, v.get_array().size(), name, "items");
      if (f.is_free) return;
      items(f, v.get_array(), name);
    } else if (v.is_object()) {
      check_size(f, v.get_object().size(), name, "members");
      if (f.is_free) return;
      members(v.get_object(), std::string(f.path), name);
    } else if (!v.is_bool() && (f.least != 0 || f.most != 0)) {
      const double x = number_of(v), most = most_of(f, limits_);
      if (!(x >= f.least && x <= most)) {
        refuse(name, fmt::format("needs {} from {} to {}, found {}{}", type_names(f.types), f.least, most, shown(v),
                                 raised_by(f, x > most)));
      }
    }
  }

  void check_string(const Field& f, const json::value& v, const std::string& name) {
    const std::string_view text(v.get_string().data(), v.get_string().size());
    const auto values = parts_of(f.values);
    if (!values.empty() && std::find(values.begin(), values.end(), text) == values.end()) {
      refuse(name, fmt::format("needs one of {}, found {}", joined(values), shown(v)));
    }
    // A field that takes one text or a list of them limits the text as it does an item.
    const Field* limits = (f.types & kArray) != 0 ? find_field(std::string(f.path) + "[]", where_) : &f;
    if (limits != nullptr && (limits->types & kString) != 0) check_size(*limits, text.size(), name, "bytes");
  }

  void check_size(const Field& f, size_t size, const std::string& name, const char* unit) const {
    const auto n = static_cast<int64_t>(size), most = size_most_of(f, limits_);
    if (n < f.size_least || (most > 0 && n > most)) {
      refuse(name,
             fmt::format("has {} {}, {} to {} are served{}", n, unit, f.size_least, most, raised_by(f, n > most)));
    }
  }

  static std::string raised_by(const Field& f, bool is_too_much) {
    return is_too_much && !f.flag.empty() ? fmt::format(": {} raises it", f.flag) : std::string();
  }

  void items(const Field& f, json::array& array, const std::string& name) {
    const Field* item = find_field(std::string(f.path) + "[]", where_);
    for (size_t i = 0; i < array.size(); ++i) {
      if (array[i].is_null() || item == nullptr)
        refuse(
            fmt::format("{}[{}]", name, i),
            fmt::format("needs {}, found {}", item == nullptr ? "nothing" : type_names(item->types), shown(array[i])));
      check(*item, array[i], fmt::format("{}[{}]", name, i));
    }
  }

  Where where_;
  bool lenient_;
  std::vector<std::string>& ignored_;
  const RequestLimits& limits_;
};

// The values of the rows that do something, at the body's own level and one below.
void apply_all(Draft& draft, const json::object& object, const std::string& path, Where where) {
  for (const auto& [key, value] : object) {
    const Field* f = find_member(path, std::string_view(key.data(), key.size()), where);
    if (f == nullptr || value.is_null()) continue;
    if (f->apply != nullptr) {
      f->apply(draft, value);
    } else if (value.is_object() && f->refused.empty() && !f->is_free) {
      apply_all(draft, value.get_object(), std::string(f->path), where);
    }
  }
}

}  // namespace

double number_of(const json::value& value) {
  if (const int64_t* i = value.if_int64()) return static_cast<double>(*i);
  if (const uint64_t* u = value.if_uint64()) return static_cast<double>(*u);
  return value.get_double();
}

int64_t integer_of(const json::value& value) {
  if (const int64_t* i = value.if_int64()) return *i;
  if (const uint64_t* u = value.if_uint64()) return static_cast<int64_t>(*u);  // the range was checked
  return static_cast<int64_t>(value.get_double());
}

double most_of(const Field& field, const RequestLimits& limits) noexcept {
  return field.limit == nullptr ? field.most : static_cast<double>(limits.*field.limit);
}

int64_t size_most_of(const Field& field, const RequestLimits& limits) noexcept {
  return field.limit == nullptr ? field.size_most : limits.*field.limit;
}

void check_fields(json::object& body, Where where, bool lenient, std::vector<std::string>& ignored,
                  const RequestLimits& limits) {
  Check(where, lenient, ignored, limits).members(body, "", "");
}

Draft read_draft(const json::object& body, Where where, const GenerateOptions& defaults) {
  Draft draft;
  draft.generate = defaults;
  apply_all(draft, body, "", where);
  return draft;
}

}  // namespace assay::api
