// Why a dump's token ids are not those of our own tokenizer: the faults that a prompt carries before any op runs (C1 to C7 of the catalogue).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "verify/subject.h"

namespace assay::verify {

// One line that names the first position that differs and what explains it; nullopt where the ids begin with those of the text (what follows
// a prompt may have been generated), or where there is no tokenizer to ask.
std::optional<std::string> explain_tokens(const Subject& subject, std::string_view text, std::span<const int32_t> found);

}  // namespace assay::verify
