// Any bytes as a GGUF file with a vocabulary: either an Error, or a tokenizer that works.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "assay/error.h"
#include "gguf/file.h"
#include "target.h"
#include "text/from_gguf.h"

ASSAY_FUZZ_TARGET(vocabulary) {
  std::shared_ptr<const assay::Tokenizer> tokenizer;
  try {
    const auto file = assay::gguf::File::parse(std::as_bytes(std::span(data, size)));
    tokenizer = assay::text::make_tokenizer(file.metadata());
  } catch (const assay::Error&) {
    return 0;  // the answer to most inputs
  }
  for (assay::TokenId id = 0; id < tokenizer->vocab_size(); ++id) tokenizer->piece(id);
  for (const assay::TokenId id : tokenizer->end_of_generation()) tokenizer->text(id);
  for (const bool parse_special : {false, true}) {
    assay::EncodeOptions options;
    options.parse_special = parse_special;
    try {
      tokenizer->decode(tokenizer->encode("Hello <s> <user>!  \n\n1234 é\xFF\xE2\x96\x81 <|im_end|>", options),
                        parse_special);
    } catch (const assay::Error&) {  // bytes without a token in a vocabulary without an unknown one
    }
  }
  return 0;
}
