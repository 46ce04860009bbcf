// The JSON of a request as values. Text from here is marked as not the template's own.
#pragma once

#include <functional>
#include <string_view>

#include "chat/value.h"

namespace assay::chat {

using Define = std::function<void(std::string_view name, Value value)>;

// Defines messages, tools, add_generation_prompt and the names of extra_json. Error(bad_request)
// for what is no JSON or of another shape.
void define_json(Heap& heap, const TemplateInput& input, const Define& define);
Value parse_json(Heap& heap, std::string_view text, const char* what, bool is_messages = false);

}  // namespace assay::chat
