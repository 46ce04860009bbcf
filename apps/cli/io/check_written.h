// verify's stages of a file that a command has just written: structure, keys, tokenizer and decoding. What fails is
// said; false: something does.
#pragma once

#include <filesystem>

#include "assay/convert.h"

namespace assay::cli {

bool check_converted(const ConvertResult& result);
// What fails in `source` too is no fault of the new file's, as is that neither can be opened as a model.
bool check_made_of(const std::filesystem::path& written, const std::filesystem::path& source);

}  // namespace assay::cli
