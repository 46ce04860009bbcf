// a.b and a[b], as Jinja's immutable sandbox resolves them: a value shows its data and the methods
// listed in builtins; nothing of the host.
#pragma once

#include "chat/value.h"

namespace assay::chat {

// Undefined where there is nothing of that name, and for every name that starts with an underscore.
Value attribute(Heap& heap, const Value& object, std::string_view name);
Value item(Heap& heap, const Value& object, const Value& key);
// A filter's attribute argument: "a.b.0" walked part by part with item(). fallback: instead of
// undefined, where given.
Value walk(Heap& heap, const Value& object, const Value& path, const Value& fallback = Value::absent());

}  // namespace assay::chat
