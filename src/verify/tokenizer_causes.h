// Known ways to read a vocabulary wrongly, tried where a subject's ids are wrong: the one that gives the subject's ids
// for every text is the cause.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "verify/subject.h"

namespace assay::verify {

// One line each, the likeliest first; empty: none of the known. At most a few that cannot be told apart on these texts.
std::vector<std::string> tokenizer_causes(const Subject& subject, std::span<const std::string> texts);

}  // namespace assay::verify
