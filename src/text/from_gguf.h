// The tokenizer of a GGUF file, from its metadata alone.
#pragma once

#include <memory>

#include "assay/tokenizer.h"
#include "gguf/metadata.h"
#include "text/facts.h"

namespace assay::text {

// Views into the metadata's file.
VocabularyFacts read_facts(const gguf::Metadata& metadata);

// The tokenizer keeps nothing of the file. Throws Error(bad_file, unsupported).
std::shared_ptr<const Tokenizer> make_tokenizer(const gguf::Metadata& metadata);

}  // namespace assay::text
