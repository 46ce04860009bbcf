// See from_boost.h.
#include "chat/from_boost.h"

#include <limits>
#include <string>
#include <string_view>

namespace assay::chat {

namespace json = boost::json;

TemplateValue value_of(const json::value& from) {
  switch (from.kind()) {
    case json::kind::null: return nullptr;
    case json::kind::bool_: return from.get_bool();
    case json::kind::int64: return from.get_int64();
    case json::kind::uint64: {
      const uint64_t number = from.get_uint64();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return TemplateValue::Digits{std::to_string(number)};
      return static_cast<int64_t>(number);
    }
    case json::kind::double_: return from.get_double();
    case json::kind::string: return std::string_view(from.get_string());
    case json::kind::array: return list_of(from.get_array());
    case json::kind::object: return dict_of(from.get_object());
  }
  return nullptr;
}

TemplateValue::List list_of(const json::array& from) {
  TemplateValue::List to;
  to.reserve(from.size());
  for (const json::value& item : from) to.push_back(value_of(item));
  return to;
}

TemplateValue::Dict dict_of(const json::object& from) {
  TemplateValue::Dict to;
  to.reserve(from.size());
  for (const auto& [key, item] : from) to.emplace_back(std::string(key), value_of(item));
  return to;
}

}  // namespace assay::chat
