// What a file that is not there yet would be refused for, or linted for.
#pragma once

#include <string>
#include <vector>

#include "gguf/head.h"

namespace assay::files {

// "model: ...", "end_of_turn: ...": problems of loading, and lint's errors. The file is put together in memory, with
// the data of small tensors and zeros for the rest; `tensors` has that data, in the head's order. name: what messages
// call it.
std::vector<std::string> findings_of(const gguf::Head& head, const gguf::File& tensors, const std::string& name);

// The same of a file that is there.
std::vector<std::string> findings_of(const std::string& path);

}  // namespace assay::files
