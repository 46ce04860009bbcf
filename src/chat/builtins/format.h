// Python's two formatting languages: "%s" % value and "{}".format(value).
#pragma once

#include "chat/builtins/builtins.h"
#include "chat/value.h"

namespace assay::chat {

Value percent_format(Heap& heap, const Str& format,
                     const Value& args);  // args: a tuple, a dict, or one value
Value brace_format(Heap& heap, const Str& format, const Args& args);

}  // namespace assay::chat
