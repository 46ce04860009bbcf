// Which keywords of JSON Schema there are, and what can be told of a schema without compiling it.
#pragma once

#include <boost/json.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay::constraint {

inline std::string_view view(const boost::json::string& s) { return {s.data(), s.size()}; }
inline std::string_view view(boost::json::string_view s) { return {s.data(), s.size()}; }

enum Types : unsigned { kNull = 1, kBoolean = 2, kObject = 4, kArray = 8, kString = 16, kNumber = 32, kInteger = 64 };
inline constexpr unsigned kAllTypes = kNull | kBoolean | kObject | kArray | kString | kNumber;

enum class Keyword { annotation, enforced, refused, unknown };
Keyword keyword_kind(std::string_view name);
// Why it is refused.
std::string_view refusal(std::string_view name);
unsigned types_of_keyword(
    std::string_view name);  // of the values it says something about; 0: of all, or it is no such keyword
std::optional<unsigned> type_named(std::string_view name);
unsigned type_of(const boost::json::value& value);  // kInteger for a number without a fraction
// Whether two values are the same to JSON Schema: numbers by value, objects without an order.
bool same_value(const boost::json::value& a, const boost::json::value& b);

std::string pointer_with(const std::string& pointer, std::string_view part);  // one part more, escaped
// The value at a reference "#/..." into the document; null: there is none. `pointer` becomes the plain JSON pointer.
const boost::json::value* find_reference(const boost::json::value& document, std::string_view reference,
                                         std::string& pointer);

// Whether no value can satisfy both: their types differ, or a member that both require, or all that each allows.
bool exclude_each_other(const boost::json::value& document, const boost::json::value& a, const boost::json::value& b);

// Past references; null where they lead nowhere or round in a circle.
const boost::json::value* resolved(const boost::json::value& document, const boost::json::value* schema);
// The types of all values that the schema may allow.
unsigned possible_types(const boost::json::value& document, const boost::json::value& schema);
// Whether its values are texts, or null where that may stand for itself: what is written then needs no quotes to be
// told from other values.
bool told_as_text(const boost::json::value& document, const boost::json::value& schema, bool null_too);

}  // namespace assay::constraint
