// What the names of files, repositories and quantisations say, and which of them may become a file of ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ascii.h"

namespace assay::store {

bool is_gguf_name(std::string_view file_name);    // ends in .gguf, in any case
std::string stem_of(std::string_view file_name);  // less .gguf

// "model-00002-of-00003.gguf" is part 2 of 3 of "model".
struct PartName {
  std::string stem;
  int64_t number = 1, count = 1;
};
std::optional<PartName> part_name(std::string_view file_name);  // nothing for a file that stands alone
std::string part_file(std::string_view stem, int64_t number, int64_t count);

// The quantisation in a stem, as written there: "Q4_K_M" of "Llama-3.2-1B-Instruct-Q4_K_M", "UD-Q4_K_XL". Empty where
// there is none.
std::string quant_of(std::string_view stem);
// Bits a weight of such a file, about; 0: not known.
double bits_of_quant(std::string_view quant);

bool equal_without_case(std::string_view a, std::string_view b);
bool begins_without_case(std::string_view text, std::string_view beginning);
// Changes of a letter between the two, case aside.
size_t edit_distance(std::string_view a, std::string_view b);

// A file's name that stays in its folder: no separators, no control characters, not hidden, not too long.
bool is_safe_file_name(std::string_view name);
// A path below a repository, made of such names.
bool is_safe_relative_path(std::string_view path);
// user/repo as Hugging Face has them.
bool is_repository(std::string_view text);
bool is_sha256(std::string_view text);  // 64 hexadecimal digits, lower case

using base::lower;

}  // namespace assay::store
