// Template source to its tree.
#pragma once

#include <memory>
#include <string_view>

#include "chat/ast.h"

namespace assay::chat {

constexpr size_t kTemplateBytesMax = 1 << 20;

// Error(bad_file) with line and column for what is no valid template or nests deeper than
// limits.depth_max; Error(unsupported) for Jinja that we do not serve (include, import, extends).
std::shared_ptr<const Program> parse_program(std::string_view source, const TemplateLimits& limits);

}  // namespace assay::chat
