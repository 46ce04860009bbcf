// The functions of {fmt} that the library calls, compiled from its headers: for a module that shall not need libfmt.so.
// What is missing here shows when the module is linked.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace assay::python {

// Whoever takes an inline function's address has it compiled.
[[gnu::used]] std::string (*const format_definition)(fmt::string_view, fmt::format_args) = &fmt::vformat;
[[gnu::used]] fmt::detail::thousands_sep_result<char> (*const separator_definition)(fmt::detail::locale_ref) =
    &fmt::detail::thousands_sep_impl<char>;
[[gnu::used]] char (*const point_definition)(fmt::detail::locale_ref) = &fmt::detail::decimal_point_impl<char>;
[[gnu::used]] bool (*const printable_definition)(uint32_t) = &fmt::detail::is_printable;

}  // namespace assay::python
