// A metadata value as JSON text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gguf/metadata.h"

namespace assay::engine {

struct JsonValue {
  std::string text;
  bool shortened = false;
};

// Arrays (inner ones too) end after items_max items; 0: never.
JsonValue metadata_json(const gguf::Entry& entry, int64_t items_max);

// A JSON string, quoted and escaped; bytes that are no UTF-8 replaced.
std::string json_string(std::string_view text);

}  // namespace assay::engine
