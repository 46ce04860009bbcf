// Values as text: str(), repr() and JSON as Python writes them.
#pragma once

#include "chat/value.h"

namespace assay::chat {

struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

void write_text(TextBuilder& out, const Value& value);  // as {{ }} shows it
void write_repr(TextBuilder& out, const Value& value, int depth = 0);
void write_json(TextBuilder& out, const Value& value, const JsonStyle& style);
Value to_text(Heap& heap, const Value& value);    // str(): a Markup becomes plain
Value soft_text(Heap& heap, const Value& value);  // str(), but a Markup stays one

}  // namespace assay::chat
