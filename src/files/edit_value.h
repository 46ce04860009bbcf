// Values as a user types them: 7, 0.5, true, some words, [1,2], ["a","b"].
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gguf/head.h"

namespace assay::files {

std::optional<gguf::ValueType> parse_type(std::string_view text);  // "u32", "str", ..; no arrays

// The text as a value of this type, or, where it begins with '[' and the type is no string, as an array of it;
// is_array: it must be one (an array of strings is asked for so). Error(bad_request) that names `key`.
gguf::Value parse_value(std::string_view key, gguf::ValueType type, bool is_array, std::string_view text);

// "u32 7", "array of 3 i32 [1, 2, 3]": long ones shortened.
std::string shown_value(const gguf::Value& value);

}  // namespace assay::files
