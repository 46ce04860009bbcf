// Python's numbers: 64-bit integers that refuse to overflow, floats that print as repr() does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chat/ast.h"
#include "chat/value.h"

namespace assay::chat {

// A decimal literal; beyond the range of double it is infinite or zero, as in Python.
double parse_real(std::string_view digits) noexcept;
// int(text, base) and float(text): nullopt where Python raises ValueError. Fails for an integer
// beyond 64 bits.
std::optional<int64_t> parse_python_int(std::string_view text, int base);
std::optional<double> parse_python_float(std::string_view text);
std::string real_text(double value);                            // repr()
std::optional<int64_t> real_to_integer(double value) noexcept;  // truncates; nullopt: NaN, infinite or beyond 64 bits

// -1, 0, 1; both are numbers and not NaN. Exact for an integer against a float.
int compare_numbers(const Value& a, const Value& b) noexcept;
Value arithmetic(Op op, const Value& a, const Value& b);  // both are numbers
Value negative(const Value& a);
Value round_number(const Value& value, int64_t precision);  // Python's round(value, precision)

}  // namespace assay::chat
