// See text_input.h.
#include "io/text_input.h"

#include <fmt/format.h>

#include "assay/utf8.h"
#include "flags/options.h"
#include "io/id_list.h"
#include "io/terminal.h"

namespace assay::cli {

void require_some(const std::string& text, const std::string& from) {
  if (text.empty()) throw UsageError(fmt::format("no prompt: {} is empty", from));
}

void TextInput::add(Flags& flags, const std::string& about_prompt, const std::string& about_file) {
  flags.value("-p,--prompt", prompt, "TEXT", about_prompt);
  flags.value("-f,--file", file, "FILE", about_file);
  flags.exclusive({"-p", "-f"});
}

void TextInput::add_ids(Flags& flags) {
  flags.value("--ids", ids, "LIST", "Token ids in place of text, e.g. 1,2,3");
  flags.value("--ids-file", ids_file, "FILE", "The same from a file");
  flags.exclusive({"-p", "-f", "--ids", "--ids-file"});
}

std::string TextInput::text() const {
  if (file) {
    const std::string text = prompt_from_file(*file);
    require_some(text, *file == "-" ? "standard input" : *file);
    return text;
  }
  if (!prompt && stdin_is_terminal()) throw UsageError("no prompt: give -p TEXT, -f FILE, or text on standard input");
  const std::string text = prompt ? *prompt : without_last_line_break(read_stdin());
  require_some(text, prompt ? "-p" : "standard input (-p TEXT and -f FILE give one)");
  require_utf8(text, prompt ? "the text of -p" : "standard input");
  return text;
}

std::vector<TokenId> TextInput::listed_ids() const {
  std::vector<TokenId> list = parse_ids(ids ? *ids : read_input(*ids_file));
  if (list.empty()) throw UsageError(fmt::format("{}: no token ids", ids ? "--ids" : *ids_file));
  return list;
}

std::vector<TokenId> raw_ids(const Model& model, const std::string& text) {
  return model.tokenizer()->encode(text, {.parse_special = true, .add_bos = {}, .add_eos = false});
}

}  // namespace assay::cli
