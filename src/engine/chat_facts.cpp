// What a file says about chatting, read without its weights.
#include <fmt/format.h>

#include "assay/error.h"
#include "assay/session.h"
#include "assay/tokenizer.h"
#include "gguf/file.h"

namespace assay {

ChatFacts read_chat_facts(const std::string& path) {
  const gguf::File file = gguf::File::open(path);
  ChatFacts facts;
  const auto source = file.metadata().find_string("tokenizer.chat_template");
  if (!source) throw Error(Errc::bad_request, fmt::format("{}: the file has no chat template", path));
  facts.chat_template = *source;
  const auto tokenizer = Tokenizer::load(path);
  if (tokenizer->bos()) facts.bos_token = tokenizer->text(*tokenizer->bos());
  if (tokenizer->eos()) facts.eos_token = tokenizer->text(*tokenizer->eos());
  return facts;
}

}  // namespace assay
