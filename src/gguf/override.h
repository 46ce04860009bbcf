// Values that a user sets in the place of a file's own, as llama.cpp spells them: llama.context_length=int:4096.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/head.h"

namespace assay::gguf {

struct Override {
  std::string key;
  Value value;
};

// KEY=TYPE:VALUE, TYPE one of int, float, bool and str; several with commas between them. Error(bad_request) for
// anything else.
std::vector<Override> parse_overrides(std::string_view text);

// Copies of what was put into a file's metadata, which they must outlive.
using OverrideStorage = std::deque<std::vector<std::byte>>;

// The entry of a key, without marking it as read; null where there is none.
const Entry* entry_of(const File& file, std::string_view key);
// Puts the value in the place of the key's, else at the end.
void put(File& file, const Override& one, OverrideStorage& storage);

}  // namespace assay::gguf
