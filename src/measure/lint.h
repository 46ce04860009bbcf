// Rules about what a file says of itself: facts that contradict each other, or that no known model
// has. Shared by `inspect --lint` and by verify's stages. What makes a file unusable is told by inspect(),
// before these.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "assay/inspect.h"
#include "gguf/file.h"
#include "model/hparams.h"

namespace assay::measure {

// Views; null where the file has no such part or it cannot be served.
struct LintInput {
  const gguf::File& file;
  const model::Hparams* hparams = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;
  bool is_read = true;  // loading got as far as reading every key it knows
};

std::vector<LintFinding> lint_metadata(const LintInput& in);
std::vector<LintFinding> lint_tokenizer(const LintInput& in);
std::vector<LintFinding> lint_template(const LintInput& in);
std::vector<LintFinding> lint(const LintInput& in);  // all of them

// The token that ends an assistant's turn in the template, found by rendering a conversation;
// nullopt where the template has none, such as one that ends turns with a line break.
std::optional<TokenId> find_end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

}  // namespace assay::measure
