// Which tokens end a generation, and which kinds of tokens a file states wrongly: by the ids the
// file names and by well-known texts.
#pragma once

#include <vector>

#include "text/facts.h"
#include "text/vocabulary.h"

namespace assay::text {

// Ascending ids. Corrects kinds in the vocabulary as llama.cpp 0.5.0 does: a token whose text marks
// the end of a turn, or a part of fill-in-the-middle, is a control token whatever the file says;
// the channel marks of gpt-oss are user-defined.
std::vector<TokenId> find_end_of_generation(Vocabulary& vocabulary, const SpecialIds& special);

}  // namespace assay::text
