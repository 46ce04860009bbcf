// JSON from outside: bounded in depth, and looked at without throwing.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace assay::store {

// Nothing for what is no JSON, or is nested deeper than 16.
inline std::optional<boost::json::value> parse_json(std::string_view text) {
  boost::json::parse_options options;
  options.max_depth = 16;
  boost::system::error_code problem;
  boost::json::value value = boost::json::parse({text.data(), text.size()}, problem, {}, options);
  if (problem) return std::nullopt;
  return value;
}

// A string of an object; empty where it has none under the key.
inline std::string text_of(const boost::json::object& object, std::string_view key) {
  const boost::json::value* value = object.if_contains({key.data(), key.size()});
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

// A number from 0 to 2^63 - 1; -1 where there is none under the key.
inline int64_t count_of(const boost::json::object& object, std::string_view key) {
  const boost::json::value* value = object.if_contains({key.data(), key.size()});
  return value != nullptr && value->is_int64() && value->get_int64() >= 0 ? value->get_int64() : -1;
}

}  // namespace assay::store
