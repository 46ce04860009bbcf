// What a template is given, as values on its heap. Text from here is marked as not the template's own.
#pragma once

#include <functional>
#include <string_view>

#include "chat/value.h"

namespace assay::chat {

using Define = std::function<void(std::string_view name, Value value)>;

// Defines messages, tools, add_generation_prompt and the names of extra. Error(bad_request) for what is of another
// shape, no UTF-8 or beyond the heap's limits.
void define_values(Heap& heap, const TemplateInput& input, const Define& define);

}  // namespace assay::chat
