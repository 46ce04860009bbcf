// Files that people take for GGUF files.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace assay::gguf {

// What a file that is no GGUF file is instead, and what to do then, as the end of an error's sentence (": it is ...");
// empty where that is not known.
std::string_view advice_for_other_file(std::span<const std::byte> bytes) noexcept;

}  // namespace assay::gguf
