// Any text as a change to a file's metadata: either an Error, or a value that can be shown and written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "assay/edit.h"
#include "assay/error.h"
#include "files/edit_value.h"
#include "target.h"

ASSAY_FUZZ_TARGET(edit) {
  using assay::gguf::ValueType;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const assay::Edit edit = assay::parse_set(text);
    const auto named = assay::files::parse_type(edit.type);
    for (const bool is_array : {false, true}) {
      const auto value = assay::files::parse_value(edit.key, named.value_or(ValueType::i32), is_array, edit.value);
      if (assay::files::shown_value(value).empty()) std::abort();
      assay::gguf::Head().set(edit.key, value);
    }
  } catch (const assay::Error&) {
    return 0;
  }
  return 0;
}
