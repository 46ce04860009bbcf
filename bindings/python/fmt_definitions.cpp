// The functions of {fmt} that the library calls, compiled from its headers: for a module that shall not need libfmt.so.
// What is missing here shows when the module is linked.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace assay::python {

// Whoever takes an inline function's address has it compiled.
[[gnu::used]] std::string (*const format_definition)(fmt::string_view, fmt::format_args) = &fmt::vformat;

}  // namespace assay::python
